import {
  asNumber,
  asText,
  type Database,
  type Dialect,
  type Row,
  type Sql,
  type SqlResult,
  sql,
} from "../../../database/sql.ts";
import type { FinishRequest, RunKey, RunStatus } from "../../../journal/runs.ts";
import { quote } from "../../../lock/errors.ts";
import { KeyedBatcher } from "../../../lock/keyed-batcher.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { checkStatus, statusOf } from "./lease.ts";
import { isHeld, timeIn } from "./rows.ts";
import { type RunEnd, signalParents } from "./signals.ts";

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

  /** The database, whose writes announce due runs: the end of a child makes its parent due. */
  readonly #due: Database;

  /** By the parent's id. Resolves to the row of each run. */
  readonly #children: KeyedBatcher<RunEnd, Row | undefined>;

  constructor(database: Database, due: Database) {
    this.#database = database;
    this.#due = due;
    this.#children = new KeyedBatcher(MOST_ENDS, (ends) => endRuns(due, ends));
  }

  async finish(
    run: RunKey,
    request: FinishRequest,
    signal: AbortSignal | undefined,
  ): Promise<"ended" | "cancelled"> {
    const { parent, status, value } = request;
    const end = { run, request };
    const isShared = parent !== undefined && !signal && value.length <= LONGEST_IN_BATCH;
    const row = isShared
      ? await this.#children.add(parent, end)
      : await endOne(this.#database, this.#due, end, signal);
    if (row === "ended") return "ended";
    const isRefused = status === "completed" && asNumber(row?.cancelled ?? 0) > 0;
    const ended = checkStatus(isRefused ? [...ENDED, "parked"] : ENDED, run, row ? [row] : []);
    return ended === "parked" ? "cancelled" : "ended";
  }
}

/**
 * Ends a run: by one statement if it has no parent, and no cancellation refuses its completion. Resolves to the row of
 * other runs, and of one that an earlier attempt has ended.
 */
async function endOne(
  database: Database,
  due: Database,
  end: RunEnd,
  signal: AbortSignal | undefined,
): Promise<Row | "ended" | undefined> {
  const { run, request } = end;
  const isAccepted = request.status === "completed" ? sql`cancelled = 0` : sql`1 = 1`;
  const alone = sql`
    ${endRun(database.dialect.now, end)} AND parent_run IS NULL AND ${isAccepted}`;
  const all = endAll(database.dialect, [end]);
  const what = `run ${quote(run.runId)} was ended`;
  const rows = await retryUntilKnown(database.address, what, signal, async (limit) => {
    if (request.parent === undefined) {
      const [ended] = await database.batch([alone], limit);
      if (ended?.affected === 1) return ["ended"] as const;
    }
    return rowsOf([end], await due.batch(all, limit));
  });
  return rows[0];
}

/** Ends the runs and signals their parents in one batch, which may be repeated. Resolves to each run's row. */
function endRuns(
  database: Database,
  ends: readonly RunEnd[],
): Promise<readonly (Row | undefined)[]> {
  const all = endAll(database.dialect, ends);
  const names = ends.map(({ run }) => quote(run.runId)).join(", ");
  const what = `run ${names} was ended`;
  return retryUntilKnown(database.address, what, undefined, async (limit) =>
    rowsOf(ends, await database.batch(all, limit)),
  );
}

/** Ends the runs, reads them, and signals their parents. */
function endAll(dialect: Dialect, ends: readonly RunEnd[]): readonly Sql[] {
  // Children are locked in the order of their ids, and before their parent, as by others.
  const sorted = ends.toSorted((a, b) => (a.run.runId < b.run.runId ? -1 : 1));
  return [
    ...sorted.map((end) => endRun(dialect.now, end)),
    statusOf(sorted.map(({ run }) => run.runId)),
    // Last: the parent's row is locked as shortly as possible.
    ...signalParents(dialect, sorted),
  ];
}

/** Returns the row of each run, of the answers to `endAll`. */
function rowsOf(
  ends: readonly RunEnd[],
  results: readonly SqlResult[],
): readonly (Row | undefined)[] {
  const found = results[ends.length]?.rows ?? [];
  const rows = new Map(found.map((row) => [asText(row.run_id), row]));
  return ends.map(({ run }) => rows.get(run.runId));
}

/** Ends the run. A run that has completed is parked and due at once if its cancellation was requested. */
function endRun(now: Sql, { run, request }: RunEnd): Sql {
  const { status, value, compensated, keep } = request;
  const isParked = status === "completed" ? sql`cancelled > 0` : sql`1 = 0`;
  const ended = (parked: Sql, end: Sql) =>
    sql`CASE WHEN ${isParked} THEN ${parked} ELSE ${end} END`;
  return sql`
    UPDATE lockstep_run
    SET status = ${ended(sql`'parked'`, sql`${status}`)}, reason = ${ended(sql`'deadline'`, sql`NULL`)},
      due_at = ${ended(now, sql`NULL`)}, value = ${ended(sql`value`, sql`${value}`)},
      compensated = ${compensated ?? null}, changed_at = ${now},
      expires_at = ${ended(sql`expires_at`, timeIn(now, keep))}
    WHERE ${isHeld(run)}`;
}
