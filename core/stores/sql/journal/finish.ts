import { asNumber, asText, type Database, type Row, type Sql, sql } from "../../../database/sql.ts";
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

  /** The end of a child makes its parent due. */
  readonly #due: Database;

  /** By the parent's id. Resolves to the row of each run. */
  readonly #children: KeyedBatcher<RunEnd, Row | undefined>;

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
    const row = await this.#end({ run, request }, signal);
    const isRefused = request.status === "completed" && asNumber(row?.cancelled ?? 0) > 0;
    const ended = checkStatus(isRefused ? [...ENDED, "parked"] : ENDED, run, row ? [row] : []);
    return ended === "parked" ? "cancelled" : "ended";
  }

  /** Ends the run, and resolves to its row. A child whose request names no parent takes a second batch. */
  async #end(end: RunEnd, signal: AbortSignal | undefined): Promise<Row | undefined> {
    const { parent, value } = end.request;
    const row = parent === undefined && (await endWithoutParent(this.#database, end, signal));
    if (row) return row;
    if (parent === undefined || signal || value.length > LONGEST_IN_BATCH) {
      const [own] = await endRuns(this.#due, [end], signal);
      return own;
    }
    return this.#children.add(parent, end);
  }
}

/** Ends a run without a parent in one batch, which may be repeated. Resolves to its row, and to undefined for a child. */
async function endWithoutParent(
  database: Database,
  end: RunEnd,
  signal: AbortSignal | undefined,
): Promise<Row | undefined> {
  const { runId } = end.run;
  const statements = [endRun(database.dialect.now, end), statusOf([runId])].map(
    (statement) => sql`${statement} AND parent_run IS NULL`,
  );
  const what = `run ${quote(runId)} was ended`;
  const { rows } = await retryUntilKnown(database.address, what, signal, async (limit) => {
    const [, found] = await database.batch(statements, limit);
    return found;
  });
  return rows[0];
}

/** Ends the runs and signals their parents in one batch, which may be repeated. Resolves to each run's row. */
function endRuns(
  database: Database,
  ends: readonly RunEnd[],
  signal: AbortSignal | undefined,
): Promise<readonly (Row | undefined)[]> {
  const { dialect, address } = database;
  // Children are locked in the order of their ids, and before their parent, as by others.
  const sorted = ends.toSorted((a, b) => (a.run.runId < b.run.runId ? -1 : 1));
  const changes = sorted.map((end) => endRun(dialect.now, end));
  const read = statusOf(sorted.map(({ run }) => run.runId));
  // Last: the parent's row is locked as shortly as possible.
  const signals = signalParents(dialect, sorted);
  const names = ends.map(({ run }) => quote(run.runId)).join(", ");
  return retryUntilKnown(address, `run ${names} was ended`, signal, async (limit) => {
    const results = await database.batch([...changes, read, ...signals], limit);
    const found = results[changes.length]?.rows ?? [];
    const rows = new Map(found.map((row) => [asText(row.run_id), row]));
    return ends.map(({ run }) => rows.get(run.runId));
  });
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
