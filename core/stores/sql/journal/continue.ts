import { asBigInt, asNumber, type Database, list, sql } from "../../../database/sql.ts";
import type { ContinueRequest } from "../../../journal/changes.ts";
import { StaleRunError } from "../../../journal/journal.ts";
import type { RunKey } from "../../../journal/runs.ts";
import { quote } from "../../../lock/errors.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { chunksOf } from "../chunks.ts";
import { parkCancelled, statusOf } from "./lease.ts";
import { isHeld } from "./rows.ts";

/**
 * Begins the next history in one batch. A repetition begins none: its part is over. The mark of the claim stays, so that
 * a late request of that claim does not claim the run again. The records of the ended history stay, and those of earlier
 * ones are deleted before. A holder that has lost the run deletes nothing: another run may have its id by now.
 */
export function continueAsNew(
  database: Database,
  run: RunKey,
  { part, input, received }: ContinueRequest,
): Promise<"continued" | "cancelled"> {
  const { runId } = run;
  const { now } = database.dialect;
  const isOurs = sql`${isHeld(run)} AND part = ${part}`;
  const isEarlier = sql`
    run_id = ${runId} AND part < ${part} AND EXISTS (SELECT 1 FROM lockstep_run WHERE ${isOurs})`;
  const forget = [
    sql`DELETE FROM lockstep_step WHERE ${isEarlier}`,
    sql`DELETE FROM lockstep_value WHERE ${isEarlier}`,
    sql`DELETE FROM lockstep_signal WHERE ${isEarlier}`,
  ];
  const begin = sql`
    UPDATE lockstep_run
    SET status = 'parked', reason = NULL, part = part + 1, input = ${input}, due_at = ${now},
      started_at = ${now}, changed_at = ${now}, crashes = 0, taken_over = 0, blocks = 0
    WHERE ${isOurs}`;
  const hasBegun = sql`
    EXISTS (
      SELECT 1 FROM lockstep_run AS r
      WHERE r.run_id = ${runId} AND r.epoch = ${run.epoch} AND r.part = ${part + 1})`;
  const receive = chunksOf(received).map(
    (numbers) => sql`
      UPDATE lockstep_signal SET part = ${part}, payload = ''
      WHERE run_id = ${runId} AND seq IN (${list(numbers)}) AND ${hasBegun}`,
  );
  const statements = [parkCancelled(now, run), begin, ...receive, statusOf([runId])];
  const what = `the next part of run ${quote(runId)} was begun`;
  return retryUntilKnown(database.address, what, undefined, async (limit) => {
    await database.batch(forget, limit);
    const [row] = (await database.batch(statements, limit)).at(-1)?.rows ?? [];
    if (row && asNumber(row.part) > part) return "continued";
    const isOurEpoch = row !== undefined && asBigInt(row.epoch) === run.epoch;
    if (isOurEpoch && asNumber(row.cancelled) > 0) return "cancelled";
    throw new StaleRunError(run);
  });
}
