import type { RecordKind, StepRecord } from "../journal/journal.ts";
import { sleep } from "../lock/abort.ts";
import { checkText } from "../lock/checks.ts";
import { quote } from "../lock/errors.ts";
import { NonDeterminismError } from "./errors.ts";

/** What the journal knows of one step. */
export interface Met {
  /** The last word on it. */
  readonly last: StepRecord | undefined;

  /** The record of one attempt that failed, or that was begun. */
  attempt(outcome: "retry" | "started", attempt: number): StepRecord | undefined;

  /** How many attempts have failed. */
  readonly failures: number;
}

/** What a run had done when it was taken up again, and how much of it the workflow's code has come across. */
export class History {
  readonly #records: ReadonlyMap<string, StepRecord>;
  readonly #order: readonly string[];

  /** Steps that the code has not come to again yet. */
  readonly #ahead: Set<string>;
  readonly #counts = new Map<string, number>();

  constructor(records: readonly StepRecord[]) {
    this.#records = new Map(records.map((record) => [record.key, record]));
    this.#order = records.map(({ key }) => key);
    const steps = records.filter(({ kind }) => kind !== "undo" && kind !== "failure");
    this.#ahead = new Set(steps.map(({ key }) => stepOf(key)));
  }

  /** Whether there are steps that the code has not come to again yet. */
  get isReplaying(): boolean {
    return this.#ahead.size > 0;
  }

  /** The key of the step that is called `name` now: the second of a name has another one than the first. */
  keyOf(name: string): string {
    const count = (this.#counts.get(name) ?? 0) + 1;
    this.#counts.set(name, count);
    return count === 1 ? name : `${name}#${count}`;
  }

  /** Where the record of this key stands in the order of all; undefined where there is none. */
  indexOf(key: string): number | undefined {
    const index = this.#order.indexOf(key);
    return index < 0 ? undefined : index;
  }

  record(key: string): StepRecord | undefined {
    return this.#records.get(key);
  }

  /** Does not wait for the code to come to this step again. */
  skip(key: string): void {
    this.#ahead.delete(key);
  }

  /** Notes that the code has come to this step. Throws a NonDeterminismError where it was something else. */
  meet(key: string, kind: RecordKind, argsHash?: string): Met {
    this.#ahead.delete(key);
    const last = this.#records.get(key);
    const attempt: Met["attempt"] = (outcome, number) =>
      this.#records.get(attemptKey(key, outcome, number));
    const known = last ?? attempt("retry", 1) ?? attempt("started", 1);
    if (known && known.kind !== kind) {
      throw new NonDeterminismError(`${quote(key)} was a ${known.kind}, and is a ${kind} now`);
    }
    if (known && known.argsHash !== argsHash) {
      throw new NonDeterminismError(`${quote(key)} has other arguments than before`);
    }
    let failures = 0;
    while (attempt("retry", failures + 1)) failures += 1;
    return { last, attempt, failures };
  }

  /**
   * Resolves once the code has come to all that is recorded, so that something new may be done. Rejects with a
   * NonDeterminismError where it does not.
   *
   * What is recorded answers at once, so all branches of the code come to it within some turns of the queue; those
   * that await something of their own besides get a moment more.
   */
  async caughtUp(next: string): Promise<void> {
    for (let turn = 0; this.isReplaying && turn < TURNS; turn += 1) await undefined;
    if (this.isReplaying) await sleep(MOMENT);
    if (!this.isReplaying) return;
    const [expected = ""] = this.#ahead;
    throw new NonDeterminismError(`${quote(expected)} was expected, and ${next} came`);
  }
}

const TURNS = 1_000;
const MOMENT = 100;

export function attemptKey(key: string, outcome: "retry" | "started", attempt: number): string {
  return `${key}@${attempt}${outcome === "started" ? " started" : ""}`;
}

/** The key of the step that a record belongs to. */
function stepOf(key: string): string {
  return key.replace(/@\d+(?: started)?$/, "");
}

/** Throws for a name that could be taken for another record's key. */
export function checkStepName(what: string, name: unknown): asserts name is string {
  checkText(what, name, 200);
  if (name.startsWith("~") || /[#@]\d+(?: started)?$/.test(name)) {
    throw new RangeError(
      `${what} ${quote(name)} must not begin with "~", or end in "#" or "@" and a number`,
    );
  }
}
