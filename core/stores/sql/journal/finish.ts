import { asNumber, type Database, type Row, type Sql, sql } from "../../../database/sql.ts";
import type { FinishRequest, RunKey, RunStatus } from "../../../journal/journal.ts";
import { quote } from "../../../lock/errors.ts";
import { KeyedBatcher } from "../../../lock/keyed-batcher.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { checkStatus, parkCancelled, statusOf } from "./lease.ts";
import { isHeld, timeIn } from "./rows.ts";
import { signalParent } from "./signals.ts";

interface RunEnd {
  readonly run: RunKey;
  readonly request: FinishRequest;
}

/** The most ends in one transaction, and the longest value in it. */
const MOST_ENDS = 50;
const LONGEST_IN_BATCH = 16_384;

const ENDED: readonly RunStatus[] = ["completed", "failed", "cancelled"];

/**
 * Ends runs. The ends of one parent's children, which would wait for each other's lock on the parent's row, share
 * transactions.
 */
export class Finisher {
  readonly #database: Database;

  /** The end of a child makes its parent due. */
  readonly #due: Database;

  /** By the parent's id. Resolves to the row of each run. */
  readonly #children: KeyedBatcher<RunEnd, readonly Row[]>;

  constructor(database: Database, due: Database) {
    this.#database = database;
    this.#due = due;
    this.#children = new KeyedBatcher(MOST_ENDS, (ends) => endRuns(due, ends, undefined));
  }

  async finish(
    run: RunKey,
    request: FinishRequest,
    signal: AbortSignal | undefined,
  ): Promise<"ended" | "cancelled"> {
    const { status, value, parent } = request;
    const isAlone = parent === undefined || signal || value.length > LONGEST_IN_BATCH;
    const end = { run, request };
    const database = parent === undefined ? this.#database : this.#due;
    const rows = await (isAlone
      ? endRuns(database, [end], signal).then(([own = []]) => own)
      : this.#children.add(parent, end));
    const isRefused = status === "completed" && asNumber(rows[0]?.cancelled ?? 0) > 0;
    const ended = checkStatus(isRefused ? [...ENDED, "parked"] : ENDED, run, rows);
    return ended === "parked" ? "cancelled" : "ended";
  }
}

/** Ends the runs and signals their parents in one batch, which may be repeated. Resolves to each run's row. */
function endRuns(
  database: Database,
  ends: readonly RunEnd[],
  signal: AbortSignal | undefined,
): Promise<readonly (readonly Row[])[]> {
  const { dialect, address } = database;
  // Children are locked in the order of their ids, and before their parent, as by others.
  const sorted = ends.toSorted((a, b) => (a.run.runId < b.run.runId ? -1 : 1));
  const changes = sorted.flatMap((end) => endRun(dialect.now, end));
  const reads = ends.map(({ run }) => statusOf(run));
  // Last: the parent's row is locked as shortly as possible.
  const signals = sorted.flatMap(({ run, request }) => signalParent(dialect, run, request));
  const names = ends.map(({ run }) => quote(run.runId)).join(", ");
  return retryUntilKnown(address, `run ${names} was ended`, signal, async (limit) => {
    const results = await database.batch([...changes, ...reads, ...signals], limit);
    return results.slice(changes.length, -signals.length).map(({ rows }) => rows);
  });
}

function endRun(now: Sql, { run, request }: RunEnd): readonly Sql[] {
  const { status, value, compensated, keep } = request;
  const end = sql`
    UPDATE lockstep_run
    SET status = ${status}, reason = NULL, due_at = NULL, value = ${value},
      compensated = ${compensated ?? null}, changed_at = ${now}, expires_at = ${timeIn(now, keep)}
    WHERE ${isHeld(run)}`;
  return status === "completed" ? [parkCancelled(now, run), end] : [end];
}
