import type { Database } from "../../database/sql.ts";
import type { RunKey } from "../journal.ts";
import type { Order } from "./order.ts";

/** How many runs are remembered. Of one that is not, the database is asked. */
const MOST_RUNS = 10_000;

/** Where records are written, and what is known of those that were. */
export interface Place {
  readonly database: Database;
  readonly lastAt: LastAt;
  readonly order: Order;
}

/** When the last record of each run was written that is carried here, in microseconds since 1970. */
export class LastAt {
  readonly #known = new Map<string, bigint>();

  get(run: RunKey): bigint | undefined {
    return this.#known.get(keyOf(run));
  }

  /** Answers may overtake one another: the latest counts. */
  note(run: RunKey, at: bigint): void {
    const last = this.get(run);
    if (last !== undefined && last >= at) return;
    if (this.#known.size >= MOST_RUNS) this.#known.clear();
    this.#known.set(keyOf(run), at);
  }
}

function keyOf({ runId, epoch }: RunKey): string {
  return `${epoch} ${runId}`;
}
