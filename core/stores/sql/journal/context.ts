import type { Database } from "../../../database/sql.ts";
import type { RunKey } from "../../../journal/runs.ts";
import type { TurnOrder } from "../../../journal/turn-order.ts";
import type { BacklogCache } from "./backlogs.ts";
import type { AnswerOrder } from "./order.ts";

/** The most runs whose last write is kept. For others, the database is read. */
const MOST_RUNS = 10_000;

/** The database of a journal, and the state of its writes. */
export interface SqlJournalContext {
  readonly database: Database;
  readonly lastWrites: LastWriteTimes;
  readonly order: AnswerOrder;
  readonly turns: TurnOrder;
  readonly backlogs: BacklogCache;
}

/** The time of each run's last record that this process wrote, in microseconds since 1970. */
export class LastWriteTimes {
  readonly #known = new Map<string, bigint>();

  get(run: RunKey): bigint | undefined {
    return this.#known.get(keyOf(run));
  }

  /** Keeps the latest time: answers may arrive out of order. */
  record(run: RunKey, at: bigint): void {
    const last = this.get(run);
    if (last !== undefined && last >= at) return;
    if (this.#known.size >= MOST_RUNS) this.#known.clear();
    this.#known.set(keyOf(run), at);
  }

  /** Keeps the time of an existing record. Without a known last write, later records may exist: the database is read. */
  raise(run: RunKey, at: bigint): void {
    if (this.get(run) !== undefined) this.record(run, at);
  }
}

function keyOf({ runId, epoch }: RunKey): string {
  return `${epoch} ${runId}`;
}
