import { asText, type Database, list, type Sql, sql } from "../../database/sql.ts";
import { insist } from "../../lock/insist.ts";

/** How many runs are deleted in one transaction: others wait for the rows that it has locked. */
const BATCH = 100;

/** Deletes runs whose time is over, and all that belongs to them. */
export async function purge(database: Database, limit: number): Promise<number> {
  for (let purged = 0; ; ) {
    const most = Math.min(BATCH, limit - purged);
    const count = most > 0 ? await insistOnDeleting(database, most) : 0;
    purged += count;
    if (count < BATCH) return purged;
  }
}

function insistOnDeleting(database: Database, most: number): Promise<number> {
  const what = "runs were purged";
  return insist(database.address, what, undefined, (limit) =>
    deleteRuns(database, sql`1 = 1`, most, limit),
  );
}

/** Deletes the run of this id if its time is over. */
export async function forget(database: Database, runId: string, limit: AbortSignal): Promise<void> {
  await deleteRuns(database, sql`run_id = ${runId}`, 1, limit);
}

/** The runs' rows are locked first: nobody takes one while it goes. */
function deleteRuns(
  database: Database,
  which: Sql,
  most: number,
  limit: AbortSignal,
): Promise<number> {
  const { now, exclusive } = database.dialect;
  const find = sql`
    SELECT run_id FROM lockstep_run WHERE expires_at <= ${now} AND ${which}
    ORDER BY expires_at LIMIT ${most} ${exclusive}`;
  return database.transaction(async (tx) => {
    const [found] = await tx.packet([find]);
    const runIds = found?.rows.map((row) => asText(row.run_id)) ?? [];
    if (runIds.length === 0) return 0;
    const these = sql`run_id IN (${list(runIds)})`;
    await tx.commit([
      sql`DELETE FROM lockstep_step WHERE ${these}`,
      sql`DELETE FROM lockstep_signal WHERE ${these}`,
      sql`DELETE FROM lockstep_run WHERE ${these}`,
    ]);
    return runIds.length;
  }, limit);
}
