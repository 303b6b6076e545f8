import {
  asNumber,
  asText,
  type Database,
  type Dialect,
  list,
  type Row,
  type Sql,
  sql,
} from "../../../database/sql.ts";
import type {
  ClaimedRun,
  RunClaim,
  RunClaimResult,
  RunLeaseRequest,
  RunNotFound,
} from "../../../journal/runs.ts";
import { quote } from "../../../lock/errors.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { micros } from "../micros.ts";
import { canRecord } from "./append.ts";
import { addBacklog, backlogOf } from "./backlogs.ts";
import type { SqlJournalContext } from "./context.ts";
import { selectPage, toPage } from "./pages.ts";
import { deleteExpiredRun } from "./purge.ts";
import { INFO, isKept, SIGNAL, toDate, toInfo, toParent, toRunState, toSignal } from "./rows.ts";
import { insertRuns } from "./start.ts";

/**
 * Creates the run if it does not exist, and claims it if it is due, in one batch.
 *
 * The call's mark makes a repetition safe: a late request of the call that claimed the run last claims nothing.
 */
export function claimRun(
  { database, backlogs }: SqlJournalContext,
  claim: RunClaim,
  signal: AbortSignal | undefined,
): Promise<RunClaimResult> {
  const { runId, workflow, inputHash } = claim;
  const { dialect, address } = database;
  const backlog = backlogOf(claim);
  const mark = crypto.randomUUID();
  const isSame = sql`workflow = ${workflow} AND input_hash = ${inputHash}`;
  return retryUntilKnown(address, `run ${quote(runId)} was claimed`, signal, async (limit) => {
    const more = backlogs.hasAdded(backlog) ? [] : [addBacklog(dialect, backlog)];
    const statements = [
      insertRuns(dialect, [claim]),
      ...take(dialect, claim, mark, isSame),
      ...more,
    ];
    const results = await database.batch(statements, limit);
    backlogs.added(backlog);
    const [run = [], signals = [], records = []] = results.slice(2, 5).map(({ rows }) => rows);
    const [row] = run;
    if (row === undefined) {
      // The run has expired. Its deletion makes room for a new run.
      await deleteExpiredRun(database, runId, limit);
      return undefined;
    }
    const isOther = asText(row.workflow) !== workflow || asText(row.input_hash) !== inputHash;
    return isOther ? { kind: "conflict" } : toClaimResult({ row, records, signals });
  });
}

/** Claims an existing run in one batch. */
export function takeRun(
  database: Database,
  request: RunLeaseRequest,
  signal: AbortSignal | undefined,
): Promise<RunClaimResult | RunNotFound> {
  const { dialect, address } = database;
  const mark = crypto.randomUUID();
  const what = `run ${quote(request.runId)} was taken`;
  return retryUntilKnown(address, what, signal, async (limit) => {
    const results = await database.batch(take(dialect, request, mark, sql`1 = 1`), limit);
    const [run = [], signals = [], records = []] = results.slice(1).map(({ rows }) => rows);
    const [row] = run;
    return row ? toClaimResult({ row, records, signals }) : { kind: "missing" };
  });
}

/** Claims the run if it is due, and reads it. Reads its records and signals if this call has claimed it. */
function take(
  dialect: Dialect,
  request: RunLeaseRequest,
  mark: string,
  condition: Sql,
): readonly Sql[] {
  const { now } = dialect;
  const { runId } = request;
  const [, ...history] = readClaimed(dialect, [runId], mark);
  return [
    updateToRunning(dialect, sql`run_id = ${runId} AND ${condition}`, request, mark),
    sql`
      SELECT ${INFO}, taken_over, blocks, input_hash, parent_run, parent_signal, wake_signal, value, compensated, signals,
        CASE WHEN claimed_by = ${mark} THEN input END AS input,
        CASE WHEN claimed_by = ${mark} AND status = 'running' THEN 1 ELSE 0 END AS ours, ${now} AS now
      FROM lockstep_run WHERE run_id = ${runId} AND ${isKept(now)}`,
    ...history,
  ];
}

/** Claims the due runs that meet the condition. Fails for a process that could execute steps and not record them. */
export function updateToRunning(
  dialect: Dialect,
  condition: Sql,
  { owner, ttl }: Omit<RunLeaseRequest, "runId">,
  mark: string,
): Sql {
  const { now } = dialect;
  const hasWritten = sql`
    EXISTS (
      SELECT 1 FROM lockstep_step AS s
      WHERE s.run_id = lockstep_run.run_id AND s.part = lockstep_run.part
        AND s.epoch = lockstep_run.epoch)`;
  // The counts come first: they read the old status and epoch, and MySQL assigns from left to right.
  return sql`
    UPDATE lockstep_run
    SET blocks = CASE WHEN status = 'running' AND ${hasWritten} THEN 0 ELSE blocks END,
      crashes = CASE
        WHEN status = 'blocked' THEN crashes
        WHEN status <> 'running' OR ${hasWritten} THEN 0
        ELSE crashes + 1 END,
      taken_over = CASE
        WHEN status = 'running' THEN 1
        WHEN taken_over = 1 AND NOT ${hasWritten} THEN 1
        ELSE 0 END,
      status = 'running', epoch = epoch + 1, owner = ${owner}, claimed_by = ${mark}, reason = NULL, waits_for = NULL,
      in_progress = NULL, due_at = ${now} + ${micros(ttl)}, changed_at = ${now},
      cancelled = CASE WHEN cancelled = 1 THEN 2 ELSE cancelled END
    WHERE ${canRecord(dialect)} AND ${condition} AND due_at <= ${now} AND claimed_by <> ${mark}`;
}

/** Reads the runs that the call with this mark has claimed, their signals, and a page of each one's records. */
export function readClaimed(
  { now }: Dialect,
  runIds: readonly string[],
  mark: string,
): readonly [runs: Sql, signals: Sql, ...records: Sql[]] {
  const isClaimed = sql`r.claimed_by = ${mark} AND r.status = 'running'`;
  const ours = sql`r.run_id IN (${list(runIds)}) AND ${isClaimed}`;
  return [
    sql`
      SELECT ${INFO}, taken_over, blocks, parent_run, parent_signal, input, signals, ${now} AS now
      FROM lockstep_run AS r
      WHERE ${ours}`,
    sql`
      SELECT s.run_id, ${SIGNAL} FROM lockstep_run AS r
      JOIN lockstep_signal AS s ON s.run_id = r.run_id
      WHERE ${ours} AND s.part IS NULL ORDER BY s.seq`,
    ...runIds.map((runId) => selectPage(runId, {}, isClaimed)),
  ];
}

interface RunRows {
  readonly row: Row;
  readonly records: readonly Row[];
  readonly signals: readonly Row[];
}

function toClaimResult(rows: RunRows): RunClaimResult {
  const isOurs = asNumber(rows.row.ours) === 1;
  return isOurs ? { kind: "claimed", ...toClaimedRun(rows) } : toRunState(rows.row);
}

export function toClaimedRun({ row, records, signals }: RunRows): ClaimedRun {
  const { epoch, workflow, version, crashes, cancelled, startedAt } = toInfo(row);
  return {
    ...{ epoch, workflow, version, crashes, cancelled, startedAt },
    part: asNumber(row.part),
    signalsSeen: asNumber(row.signals),
    takenOver: asNumber(row.taken_over) === 1,
    blocks: asNumber(row.blocks),
    input: asText(row.input),
    parent: toParent(row),
    ...toPage(records),
    signals: signals.map(toSignal),
    now: toDate(row.now),
  };
}
