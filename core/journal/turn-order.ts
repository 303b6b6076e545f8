import { checkText, checkWhole } from "../lock/checks.ts";
import type { RunTurn } from "./runs.ts";

/** A due run, as far as its turn depends on it. */
export interface WaitingRun {
  readonly runId: string;
  readonly queue: string;
  readonly workflow: string;

  /** Undefined for runs that share the turns of their workflow. */
  readonly key: string | undefined;
  readonly priority: number;

  /** On any scale. */
  readonly dueAt: number;
}

/** The queue of runs that name none. */
export const DEFAULT_QUEUE = "default";

const HIGHEST_PRIORITY = 1_000;

/** Throws a TypeError or RangeError for properties that no run can have. */
export function checkTurn({ queue, key, priority = 0 }: RunTurn): void {
  if (queue !== undefined) checkText("queue", queue, 255);
  if (key !== undefined) checkText("key", key, 255);
  checkWhole("priority", priority, -HIGHEST_PRIORITY, HIGHEST_PRIORITY);
}

/** The most keys whose last turn is kept. */
const MOST_KEYS = 10_000;

/** Lets the keys of due runs take turns, over all claims of one client. */
export class TurnOrder {
  readonly #lastTurns = new Map<string, number>();
  #turns = 0;

  /**
   * Sorts runs by their turns: the highest priority first, then the key whose last turn is longest ago, then the run that
   * is due longest.
   */
  sort<R extends WaitingRun>(runs: readonly R[]): readonly R[] {
    return [...Map.groupBy(runs, lineOf)]
      .flatMap(([line, waiting]) => {
        const lastTurn = this.#lastTurns.get(line) ?? 0;
        // The second run of a key comes after the first runs of all other keys.
        return waiting.toSorted(byPriority).map((run, round) => ({ run, round, lastTurn }));
      })
      .sort(
        (a, b) =>
          b.run.priority - a.run.priority ||
          a.round - b.round ||
          a.lastTurn - b.lastTurn ||
          a.run.dueAt - b.run.dueAt,
      )
      .map(({ run }) => run);
  }

  /** Notes that the run had its turn. */
  taken(run: WaitingRun): void {
    if (this.#lastTurns.size >= MOST_KEYS) this.#lastTurns.clear();
    this.#turns += 1;
    this.#lastTurns.set(lineOf(run), this.#turns);
  }
}

function byPriority(a: WaitingRun, b: WaitingRun): number {
  return b.priority - a.priority || a.dueAt - b.dueAt;
}

function lineOf({ queue, workflow, key }: WaitingRun): string {
  return JSON.stringify(key === undefined ? [queue, workflow] : [queue, "", key]);
}
