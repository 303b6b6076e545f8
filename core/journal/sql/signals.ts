import {
  asText,
  type Database,
  type Dialect,
  type Row,
  type Sql,
  sql,
} from "../../database/sql.ts";
import { quote } from "../../lock/errors.ts";
import { insist } from "../../lock/insist.ts";
import { toPayload } from "../ending.ts";
import type { Ending, NewSignal, RunKey } from "../journal.ts";
import { isKept } from "./rows.ts";

/**
 * Leaves a signal in one packet. The run's row is locked first, so that what the next statements see stays true
 * until the end, and each of them says itself when it must change nothing.
 */
export function leaveSignal(
  database: Database,
  runId: string,
  { name, dedupeId, payload }: NewSignal,
): Promise<"delivered" | "duplicate" | "ended" | "missing"> {
  const { now, exclusive } = database.dialect;
  const isKnown = sql`
    EXISTS (
      SELECT 1 FROM lockstep_signal AS s
      WHERE s.run_id = ${runId} AND s.name = ${name} AND s.dedupe_id = ${dedupeId})`;
  const isNew = sql`
    EXISTS (
      SELECT 1 FROM lockstep_signal AS s
      WHERE s.run_id = ${runId} AND s.seq = lockstep_run.signals + 1)`;
  const statements = [
    sql`
      SELECT status FROM lockstep_run WHERE run_id = ${runId} AND ${isKept(now)} ${exclusive}`,
    sql`
      INSERT INTO lockstep_signal (run_id, seq, name, dedupe_id, payload, at)
      SELECT run_id, signals + 1, ${name}, ${dedupeId}, ${payload}, ${now} FROM lockstep_run
      WHERE run_id = ${runId} AND ${IS_OPEN} AND NOT ${isKnown}`,
    sql`
      UPDATE lockstep_run SET due_at = ${wokenAt(now)}, signals = signals + 1
      WHERE run_id = ${runId} AND ${isNew}`,
  ];
  const what = `signal ${quote(name)} was left for run ${quote(runId)}`;
  return insist(database.address, what, undefined, async (limit) => {
    const [run, left] = await database.packet(statements, limit);
    return refusalOf(run?.rows ?? []) ?? (left?.affected === 1 ? "delivered" : "duplicate");
  });
}

export function cancel(
  database: Database,
  runId: string,
): Promise<"requested" | "ended" | "missing"> {
  const { now } = database.dialect;
  // due_at first: it still needs the old mark, and MySQL assigns from left to right.
  const request = sql`
    UPDATE lockstep_run
    SET due_at = CASE WHEN cancelled = 0 THEN ${wokenAt(now)} ELSE due_at END,
      cancelled = CASE WHEN cancelled = 0 THEN 1 ELSE cancelled END
    WHERE run_id = ${runId} AND ${IS_OPEN}`;
  const read = sql`SELECT status FROM lockstep_run WHERE run_id = ${runId} AND ${isKept(now)}`;
  const what = `the cancellation of run ${quote(runId)} was requested`;
  return insist(database.address, what, undefined, async (limit) => {
    const [, run] = await database.packet([request, read], limit);
    return refusalOf(run?.rows ?? []) ?? "requested";
  });
}

/**
 * After the end of a run, in the same transaction: leaves the signal for its parent, if it has one that has not
 * ended. The parent's row is locked first, as in `leaveSignal`.
 */
export function tellParent(
  { now, exclusive, onConflict }: Dialect,
  { runId, epoch }: RunKey,
  ending: Ending,
): readonly Sql[] {
  const family = sql`
    FROM lockstep_run AS child JOIN lockstep_run AS parent ON parent.run_id = child.parent_run
    WHERE child.run_id = ${runId} AND child.epoch = ${epoch} AND child.status = ${ending.status}
      AND parent.status IN ('running', 'parked')`;
  const isKnown = sql`
    EXISTS (
      SELECT 1 FROM lockstep_signal AS s
      WHERE s.run_id = parent.run_id AND s.name = child.parent_signal AND s.dedupe_id = child.run_id)`;
  const isNew = sql`
    EXISTS (
      SELECT 1 FROM lockstep_signal AS s
      WHERE s.run_id = parent.run_id AND s.seq = parent.signals + 1)`;
  return [
    sql`SELECT parent.run_id ${family} ${exclusive}`,
    sql`
      INSERT INTO lockstep_signal (run_id, seq, name, dedupe_id, payload, at)
      SELECT parent.run_id, parent.signals + 1, child.parent_signal, child.run_id,
        ${toPayload(ending)}, ${now}
      ${family} AND NOT ${isKnown}`,
    // Not an UPDATE that finds the parent by a subquery: where the optimizer does not evaluate that in advance, it
    // goes through all runs and locks them. This finds the row by its key, and inserts nothing since it is there.
    sql`
      INSERT INTO lockstep_run (
        run_id, workflow, version, input, input_hash, status, epoch, owner, claimed_by, crashes,
        cancelled, signals, started_at, changed_at)
      SELECT parent.run_id, '', 0, '', '', '', 0, '', '', 0, 0, 0, 0, 0
      ${family} AND ${isNew}
      ${onConflict("run_id")} due_at = ${wokenAt(now)}, signals = lockstep_run.signals + 1`,
  ];
}

const IS_OPEN = sql`status IN ('running', 'parked')`;

/** A parked run is due at once, if it is not due already. */
function wokenAt(now: Sql): Sql {
  return sql`
    CASE WHEN lockstep_run.status = 'parked'
        AND (lockstep_run.due_at IS NULL OR lockstep_run.due_at > ${now})
      THEN ${now} ELSE lockstep_run.due_at END`;
}

/** Of a run that can be left nothing any more. */
function refusalOf([row]: readonly Row[]): "ended" | "missing" | undefined {
  if (row === undefined) return "missing";
  return ["running", "parked"].includes(asText(row.status)) ? undefined : "ended";
}
