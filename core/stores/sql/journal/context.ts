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

/** The time of each run's last record that this process has read or written, in microseconds since 1970. */
export class LastWriteTimes {
  readonly #known = new Map<string, { readonly epoch: bigint; readonly at: bigint }>();

  get({ runId, epoch }: RunKey): bigint | undefined {
    const known = this.#known.get(runId);
    return known?.epoch === epoch ? known.at : undefined;
  }

  /** Keeps the latest time: answers may arrive out of order. */
  record({ runId, epoch }: RunKey, at: bigint): void {
    const known = this.#known.get(runId);
    if (known && (known.epoch > epoch || (known.epoch === epoch && known.at >= at))) return;
    if (this.#known.size >= MOST_RUNS) this.#known.clear();
    this.#known.set(runId, { epoch, at });
  }

  /** Keeps the time of an existing record. Without a known last write, later records may exist: the database is read. */
  raise(run: RunKey, at: bigint): void {
    if (this.get(run) !== undefined) this.record(run, at);
  }
}
