import { asText, type Database, list, type Sql, sql } from "../../../database/sql.ts";
import type { ReopenRequest } from "../../../journal/changes.ts";
import type { RunKey } from "../../../journal/runs.ts";
import { supersededPrefix } from "../../../journal/superseded.ts";
import { quote } from "../../../lock/errors.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { chunksOf } from "../chunks.ts";
import { TAKEN_OVER } from "./claim.ts";
import { isKept, partOf } from "./rows.ts";

/** The assignments that make a run due that has ended or is blocked. */
export function toReopened(now: Sql): Sql {
  // The takeover comes first: it reads the old epoch, and MySQL assigns from left to right.
  return sql`
    taken_over = ${TAKEN_OVER}, status = 'parked', reason = NULL, value = NULL, compensated = NULL, expires_at = NULL,
    wake_signal = NULL, wake_within = NULL, due_at = ${now}, changed_at = ${now}, crashes = 0, blocks = 0,
    epoch = lockstep_run.epoch + 1`;
}

/**
 * Reopens the run in one batch, which may be repeated. The call's mark shows who has reopened the run, also when the run
 * was claimed since; a repetition leaves the records of that claim alone.
 */
export function reopen(
  database: Database,
  run: RunKey,
  { supersede, isRetry }: ReopenRequest,
): Promise<boolean> {
  const { runId, epoch } = run;
  const { now } = database.dialect;
  const mark = crypto.randomUUID();
  // The cancellation comes first: it reads the old status, and MySQL assigns from left to right.
  const restart = sql`
    cancelled = CASE WHEN status = 'blocked' THEN cancelled ELSE 0 END, started_at = ${now},`;
  const open = sql`
    UPDATE lockstep_run
    SET ${isRetry ? restart : sql``} ${toReopened(now)}, claimed_by = ${mark}, reopened_by = ${mark}
    WHERE run_id = ${runId} AND epoch = ${epoch} AND status NOT IN ('running', 'parked')
      AND ${isKept(now)}`;
  const statements = [
    open,
    ...renames(run, supersede, mark),
    sql`SELECT reopened_by FROM lockstep_run WHERE run_id = ${runId}`,
  ];
  const what = `run ${quote(runId)} was reopened`;
  return retryUntilKnown(database.address, what, undefined, async (limit) => {
    const results = await database.batch(statements, limit);
    const [row] = results.at(-1)?.rows ?? [];
    return { isOurs: row?.reopened_by != null && asText(row.reopened_by) === mark };
  }).then(({ isOurs }) => isOurs);
}

function renames({ runId, epoch }: RunKey, keys: readonly string[], mark: string): readonly Sql[] {
  return chunksOf(keys).map(
    (chunk) => sql`
      UPDATE lockstep_step SET step_key = CONCAT(${supersededPrefix(epoch)}, step_key)
      WHERE run_id = ${runId} AND part = ${partOf(runId)} AND step_key IN (${list(chunk)}) AND EXISTS (
        SELECT 1 FROM lockstep_run AS r WHERE r.run_id = ${runId} AND r.claimed_by = ${mark})`,
  );
}
