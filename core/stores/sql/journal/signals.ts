import {
  asNumber,
  asText,
  type Database,
  type Dialect,
  list,
  type Row,
  type Sql,
  type SqlValue,
  sql,
} from "../../../database/sql.ts";
import { encodeChildResult, worstOf } from "../../../journal/child-result.ts";
import {
  type CancelledChildren,
  type Compensation,
  type FinishRequest,
  isOpen,
  type NewSignal,
  type RunKey,
  type RunStatus,
} from "../../../journal/runs.ts";
import { quote } from "../../../lock/errors.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { chunksOf } from "../chunks.ts";
import { toReopened } from "./reopen.ts";
import { isKept, isOpenSql } from "./rows.ts";

/**
 * Sends a signal in one batch. The lock on the run's row keeps the conditions of the later statements true until the
 * end. Each statement has its own condition, and changes nothing if that is false.
 */
export function sendSignal(
  database: Database,
  runId: string,
  { name, dedupeId, payload }: NewSignal,
): Promise<"delivered" | "duplicate" | "ended" | "missing"> {
  const { now, forUpdate } = database.dialect;
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
      SELECT status FROM lockstep_run WHERE run_id = ${runId} AND ${isKept(now)} ${forUpdate}`,
    sql`
      INSERT INTO lockstep_signal (run_id, seq, name, dedupe_id, payload, at)
      SELECT run_id, signals + 1, ${name}, ${dedupeId}, ${payload}, ${now} FROM lockstep_run
      WHERE run_id = ${runId} AND ${IS_OPEN} AND NOT ${isKnown}`,
    sql`
      UPDATE lockstep_run
      SET due_at = CASE WHEN status = 'parked' AND reason = 'debounce' THEN due_at
          ELSE ${dueAtAfterSignal(now)} END,
        last_sent = signals + 1, signals = signals + 1
      WHERE run_id = ${runId} AND ${isNew}`,
  ];
  const what = `signal ${quote(name)} was sent to run ${quote(runId)}`;
  return retryUntilKnown(database.address, what, undefined, async (limit) => {
    const [run, inserted] = await database.batch(statements, limit);
    return refusalOf(run?.rows ?? []) ?? (inserted?.affected === 1 ? "delivered" : "duplicate");
  });
}

export function requestCancel(
  database: Database,
  runId: string,
): Promise<"requested" | "ended" | "missing"> {
  const { now } = database.dialect;
  const request = cancelRuns(now, [runId]);
  const read = sql`SELECT status FROM lockstep_run WHERE run_id = ${runId} AND ${isKept(now)}`;
  const what = `the cancellation of run ${quote(runId)} was requested`;
  return retryUntilKnown(database.address, what, undefined, async (limit) => {
    const [, run] = await database.batch([request, read], limit);
    return refusalOf(run?.rows ?? []) ?? "requested";
  });
}

/**
 * Cancels the children by their ids: an UPDATE that finds them by the index of parents locks its entries before the rows,
 * and the end of a child locks them in the other order.
 */
export function cancelChildren(database: Database, runId: string): Promise<CancelledChildren> {
  const { now } = database.dialect;
  const children = sql`
    lockstep_run WHERE parent_run = ${runId} AND detached = 0 AND ${isKept(now)}`;
  const readOpen = sql`SELECT run_id, cancelled FROM ${children} AND ${IS_OPEN}`;
  const readEnded = sql`
    SELECT DISTINCT compensated FROM ${children} AND compensated IS NOT NULL`;
  const what = `the children of run ${quote(runId)} were cancelled`;
  return retryUntilKnown(database.address, what, undefined, async (limit) => {
    const going = (await database.read(readOpen, limit))
      .filter(({ cancelled }) => asNumber(cancelled) === 0)
      .map((row) => asText(row.run_id))
      .sort();
    const requests = chunksOf(going).map((ids) => cancelRuns(now, ids));
    const results = await database.batch([...requests, readOpen, readEnded], limit);
    const [open = [], ended = []] = results.slice(requests.length).map(({ rows }) => rows);
    return {
      open: open.map((row) => asText(row.run_id)),
      compensated: worstOf(ended.map((row) => asText(row.compensated) as Compensation)),
    };
  });
}

function cancelRuns(now: Sql, runIds: readonly string[]): Sql {
  // due_at comes first: it reads the old `cancelled`, and MySQL assigns from left to right.
  return sql`
    UPDATE lockstep_run
    SET due_at = CASE WHEN cancelled = 0 THEN ${dueAtAfterSignal(now)} ELSE due_at END,
      cancelled = CASE WHEN cancelled = 0 THEN 1 ELSE cancelled END
    WHERE run_id IN (${list(runIds)}) AND ${IS_OPEN}`;
}

export interface RunEnd {
  readonly run: RunKey;
  readonly request: FinishRequest;
}

/** The longest values of several ends in one statement. */
const LONGEST_VALUES = 16_384;

/**
 * Sends the results of ended runs to their parents, in the same transaction. The parents' rows are locked first, as in
 * `sendSignal`. A parent that is deleted at the same time gets no signal.
 */
export function signalParents(dialect: Dialect, ends: readonly RunEnd[]): readonly Sql[] {
  const { now, forUpdate, onConflict } = dialect;
  const notCompleted = ends.filter(({ request }) => request.status !== "completed");
  const isKnown = sql`
    EXISTS (
      SELECT 1 FROM lockstep_signal AS s
      WHERE s.run_id = parent.run_id AND s.name = child.parent_signal AND s.dedupe_id = child.run_id)`;
  const isNew = sql`
    EXISTS (
      SELECT 1 FROM lockstep_signal AS s
      WHERE s.run_id = parent.run_id AND s.seq = parent.signals + 1)`;
  // Not MAX(): MySQL would read all signals of the run.
  const last = sql`(
    SELECT s.seq FROM lockstep_signal AS s WHERE s.run_id = lockstep_run.run_id
    ORDER BY s.seq DESC LIMIT 1)`;
  const reopenParent = (failed: readonly RunEnd[]) => sql`
    ${selectParents(failed)} AND ${isKnown} AND child.detached = 0
      AND parent.status IN ('failed', 'cancelled')
    ${onConflict("run_id")} ${toReopened(now)}`;
  const tell = (some: readonly RunEnd[]) => [
    sql`
      INSERT INTO lockstep_signal (run_id, seq, name, dedupe_id, payload, at)
      SELECT parent.run_id,
        parent.signals + ROW_NUMBER() OVER (PARTITION BY parent.run_id ORDER BY child.run_id),
        child.parent_signal, child.run_id,
        ${ofChild(some, ({ request }) => encodeChildResult(request))}, ${now}
      ${familyOf(some)} AND NOT ${isKnown}`,
    sql`
      ${selectParents(some)} AND ${isNew}
      ${onConflict("run_id")} due_at = ${dueAtAfterEnds(now, last)}, signals = ${last}`,
  ];
  return [
    sql`SELECT parent.run_id ${familyOf(ends)} ${forUpdate}`,
    ...(notCompleted.length > 0 ? [reopenParent(notCompleted)] : []),
    ...batchesOf(ends).flatMap(tell),
  ];
}

/** Children that have ended as their holders said, and their parents. */
function familyOf(ends: readonly RunEnd[]): Sql {
  return sql`
    FROM lockstep_run AS child JOIN lockstep_run AS parent ON parent.run_id = child.parent_run
    WHERE child.run_id IN (${list(ends.map(({ run }) => run.runId))})
      AND child.epoch = ${ofChild(ends, ({ run }) => run.epoch)}
      AND child.status = ${ofChild(ends, ({ request }) => request.status)}`;
}

/**
 * Begins a change of the parents. Not an UPDATE with a subquery for them: unless the optimizer evaluates the subquery
 * first, the UPDATE scans and locks all runs. This upsert finds the existing rows by their keys and inserts nothing.
 */
function selectParents(ends: readonly RunEnd[]): Sql {
  return sql`
    INSERT INTO lockstep_run (
      run_id, workflow, version, input, input_hash, status, epoch, owner, claimed_by, crashes,
      cancelled, signals, started_at, changed_at)
    SELECT DISTINCT parent.run_id, '', 0, '', '', '', 0, '', '', 0, 0, 0, 0, 0 ${familyOf(ends)}`;
}

/** The value of each child. */
function ofChild(ends: readonly RunEnd[], partOf: (end: RunEnd) => SqlValue): Sql {
  const cases = ends
    .map((end) => sql` WHEN ${end.run.runId} THEN ${partOf(end)}`)
    .reduce((all, one) => sql`${all}${one}`);
  return sql`CASE child.run_id${cases} END`;
}

/** Splits the ends into those of single statements. */
function batchesOf(ends: readonly RunEnd[]): readonly (readonly RunEnd[])[] {
  const batches: RunEnd[][] = [];
  let length = Number.POSITIVE_INFINITY;
  for (const end of ends) {
    length += end.request.value.length;
    if (length > LONGEST_VALUES) {
      batches.push([]);
      length = end.request.value.length;
    }
    batches.at(-1)?.push(end);
  }
  return batches;
}

/** The new due_at of a run whose children have ended: at once, or after the pause that the run was parked with. */
function dueAtAfterEnds(now: Sql, last: Sql): Sql {
  const later = sql`${now} + lockstep_run.wake_within`;
  const isLast = sql`${last} >= lockstep_run.wake_signal`;
  return sql`
    CASE WHEN lockstep_run.status <> 'parked' OR lockstep_run.wake_signal IS NULL OR ${isLast}
      THEN ${dueAtAfterSignal(now)}
      WHEN lockstep_run.due_at IS NULL OR lockstep_run.due_at > ${later} THEN ${later}
      ELSE lockstep_run.due_at END`;
}

const IS_OPEN = isOpenSql(sql`lockstep_run`);

/** The new due_at of a run with a signal: a parked or blocked run is due now, unless it is due already. */
function dueAtAfterSignal(now: Sql): Sql {
  return sql`
    CASE WHEN lockstep_run.status IN ('parked', 'blocked')
        AND (lockstep_run.due_at IS NULL OR lockstep_run.due_at > ${now})
      THEN ${now} ELSE lockstep_run.due_at END`;
}

/** The answer for a run that accepts no signal. */
function refusalOf([row]: readonly Row[]): "ended" | "missing" | undefined {
  if (row === undefined) return "missing";
  return isOpen(asText(row.status) as RunStatus) ? undefined : "ended";
}
