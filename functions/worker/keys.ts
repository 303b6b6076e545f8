import type { Journal, WorkflowKey } from "../../core/journal/journal.ts";
import { decode } from "../../core/steps/codec.ts";

/** What a run's key may be made of. */
export interface KeyedRun extends WorkflowKey {
  readonly runId: string;

  /** As the workflow's body gets it. */
  readonly input: unknown;
}

/** Undefined: the run counts for no key. */
export type KeyOf = (run: KeyedRun) => string | undefined;

/** How many runs' keys are remembered: what is due now will be due again if its key is busy. */
const MOST_RUNS = 10_000;

/** Keeps the runs of one key from taking more than their share of a worker. */
export class Keys {
  readonly #journal: Journal;
  readonly #keyOf: KeyOf;
  readonly #perKey: number;
  readonly #known = new Map<string, string | undefined>();
  readonly #running = new Map<string, number>();

  constructor(journal: Journal, keyOf: KeyOf, perKey: number) {
    this.#journal = journal;
    this.#keyOf = keyOf;
    this.#perKey = perKey;
  }

  /** Finds out the key of a run. A run's input never changes, and neither does its key. */
  async learn(runId: string): Promise<void> {
    if (this.#known.has(runId)) return;
    const run = await this.#journal.show(runId);
    if (!run) return;
    if (this.#known.size >= MOST_RUNS) this.#known.clear();
    const { workflow, version, input } = run;
    this.#known.set(runId, this.#keyOf({ runId, workflow, version, input: decode(input) }));
  }

  hasRoom(runId: string): boolean {
    const key = this.#known.get(runId);
    return key === undefined || (this.#running.get(key) ?? 0) < this.#perKey;
  }

  /** Counts the run until disposed. */
  enter(runId: string): Disposable {
    const key = this.#known.get(runId);
    if (key === undefined) return { [Symbol.dispose]: () => {} };
    this.#add(key, 1);
    return { [Symbol.dispose]: () => this.#add(key, -1) };
  }

  #add(key: string, change: number): void {
    const count = (this.#running.get(key) ?? 0) + change;
    if (count === 0) this.#running.delete(key);
    else this.#running.set(key, count);
  }
}
