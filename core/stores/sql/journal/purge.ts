import { asText, type Database, list, type Sql, sql } from "../../../database/sql.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { backlogIn, deleteBacklog } from "./backlogs.ts";
import { purgeRates } from "./limits.ts";

/** The most runs in one transaction: other transactions wait for the rows that it locks. */
const BATCH = 100;

/** The most records in one transaction, which has to end within the time of a call. A run with more has one of its own. */
const MOST_RECORDS = 5_000;

/** Deletes expired runs with their records, values and signals, and rates of keys that are not in use. */
export async function purge(database: Database, limit: number): Promise<number> {
  let purged = 0;
  while (purged < limit) {
    const count = await deleteUntilKnown(database, Math.min(BATCH, limit - purged));
    if (count === 0) break;
    purged += count;
  }
  await purgeRates(database, BATCH);
  return purged;
}

function deleteUntilKnown(database: Database, most: number): Promise<number> {
  const what = "runs were purged";
  return retryUntilKnown(database.address, what, undefined, (limit) =>
    deleteRuns(database, sql`1 = 1`, most, limit),
  );
}

/** Deletes the run with this id if it has expired. */
export async function deleteExpiredRun(
  database: Database,
  runId: string,
  limit: AbortSignal,
): Promise<void> {
  await deleteRuns(database, sql`run_id = ${runId}`, 1, limit);
}

/** Locks the runs' rows first, so that no process claims a run during its deletion. */
function deleteRuns(
  database: Database,
  which: Sql,
  most: number,
  limit: AbortSignal,
): Promise<number> {
  const { now, forUpdate } = database.dialect;
  const find = sql`
    SELECT run_id, queue, workflow, version, priority, turn_key,
      (SELECT COUNT(*) FROM lockstep_step WHERE lockstep_step.run_id = lockstep_run.run_id) AS records
    FROM lockstep_run
    WHERE expires_at <= ${now} AND ${which}
    ORDER BY expires_at LIMIT ${most} ${forUpdate}`;
  return database.transaction(async (tx) => {
    const [found] = await tx.batch([find]);
    let records = 0;
    const runs = (found?.rows ?? []).filter((row, at) => {
      records += Number(row.records);
      return at === 0 || records <= MOST_RECORDS;
    });
    if (runs.length === 0) return 0;
    const runIds = runs.map((row) => asText(row.run_id));
    const backlogs = new Map(
      runs.map(backlogIn).map((backlog) => [JSON.stringify(backlog), backlog]),
    );
    const these = sql`run_id IN (${list(runIds)})`;
    await tx.commit([
      sql`DELETE FROM lockstep_step WHERE ${these}`,
      sql`DELETE FROM lockstep_value WHERE ${these}`,
      sql`DELETE FROM lockstep_signal WHERE ${these}`,
      sql`DELETE FROM lockstep_start WHERE ${these}`,
      sql`DELETE FROM lockstep_run WHERE ${these}`,
      ...[...backlogs.values()].map(deleteBacklog),
    ]);
    return runs.length;
  }, limit);
}
