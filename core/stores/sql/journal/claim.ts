import {
  asBigInt,
  asNumber,
  asText,
  type Database,
  type Dialect,
  exact,
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
import { isKept, runState, SIGNAL, toDate, toParent, toRunState, toSignal } from "./rows.ts";
import { epochSalt, hasFirstEpoch, insertRuns } from "./start.ts";

/**
 * Creates the run if it does not exist, and claims it if it is due. A new run is claimed as it is created; an existing one
 * that is due takes a second batch.
 *
 * The call's mark makes a repetition safe: a late request of the call that claimed the run last claims nothing.
 */
export function claimRun(
  context: SqlJournalContext,
  claim: RunClaim,
  signal: AbortSignal | undefined,
): Promise<RunClaimResult> {
  const { database, backlogs } = context;
  const { dialect, address } = database;
  const { runId, workflow, inputHash, ttl } = claim;
  const backlog = backlogOf(claim);
  const first = { mark: crypto.randomUUID(), ttl, salt: epochSalt() };
  const isConflict = (row: Row) =>
    asText(row.workflow) !== workflow || asText(row.input_hash) !== inputHash;
  return retryUntilKnown(address, `run ${quote(runId)} was claimed`, signal, async (limit) => {
    const more = backlogs.hasAdded(backlog) ? [] : [addBacklog(dialect, backlog)];
    // A process that could not record steps creates no run: the failure of the read takes the insert back.
    const read = sql`${readRun(dialect, runId, first.mark)} AND ${canRecord(dialect)}`;
    const statements = [insertRuns(dialect, [claim], first), read, ...more];
    const [, found] = await database.batch(statements, limit);
    backlogs.added(backlog);
    const [row] = found?.rows ?? [];
    if (row === undefined) {
      // The run has expired. Its deletion makes room for a new run.
      await deleteExpiredRun(database, runId, limit);
      return undefined;
    }
    if (isConflict(row)) return { kind: "conflict" };
    const isUntouched = hasFirstEpoch(row, first.salt) && asNumber(row.signals) === 0;
    const needsHistory = isOurs(row) ? !isUntouched : isDue(row);
    if (!needsHistory) return toClaimResult(context, { row, records: [], signals: [] });
    // Since then, the run may have been claimed, replaced by a new one, or given another input by a debounced start.
    const isSame = sql`epoch = ${asBigInt(row.epoch)} AND input_hash = ${inputHash}`;
    const taken = await takeOnce(database, claim, { mark: first.mark, condition: isSame }, limit);
    return taken && (isConflict(taken.row) ? { kind: "conflict" } : toClaimResult(context, taken));
  });
}

/** Claims an existing run in one batch. */
export function takeRun(
  context: SqlJournalContext,
  request: RunLeaseRequest,
  signal: AbortSignal | undefined,
): Promise<RunClaimResult | RunNotFound> {
  const attempt = { mark: crypto.randomUUID(), condition: sql`1 = 1` };
  const what = `run ${quote(request.runId)} was taken`;
  const { database } = context;
  return retryUntilKnown(database.address, what, signal, async (limit) => {
    const rows = await takeOnce(database, request, attempt, limit);
    return rows ? toClaimResult(context, rows) : { kind: "missing" };
  });
}

/** Claims the run if it is due, and reads it. Reads its records and signals if this call has claimed it. */
async function takeOnce(
  database: Database,
  request: RunLeaseRequest,
  { mark, condition }: { readonly mark: string; readonly condition: Sql },
  limit: AbortSignal,
): Promise<RunRows | undefined> {
  const { dialect } = database;
  const { runId } = request;
  const results = await database.batch(
    [
      updateToRunning(dialect, sql`run_id = ${runId} AND ${condition}`, request, { mark }),
      readRun(dialect, runId, mark),
      ...readHistories([runId], mark),
    ],
    limit,
  );
  const [run = [], signals = [], records = []] = results.slice(1).map(({ rows }) => rows);
  const [row] = run;
  return row && { row, signals, records };
}

/** What a claim reads of a run. */
const FACTS = sql`
  run_id, part, workflow, version, ${exact(sql`epoch`)} AS epoch, crashes, blocks, taken_over, cancelled, signals,
  started_at, parent_run, parent_signal`;

/** Reads the run's state, and its input if the call with this mark has claimed it. */
function readRun({ now }: Dialect, runId: string, mark: string): Sql {
  return sql`
    SELECT ${FACTS}, input_hash, ${runState(now)}, CASE WHEN claimed_by = ${mark} THEN input END AS input,
      CASE WHEN claimed_by = ${mark} AND status = 'running' THEN 1 ELSE 0 END AS ours
    FROM lockstep_run WHERE run_id = ${runId} AND ${isKept(now)}`;
}

function isOurs({ ours }: Row): boolean {
  return asNumber(ours) === 1;
}

function isDue({ due_at: dueAt, now }: Row): boolean {
  return dueAt != null && asBigInt(dueAt) <= asBigInt(now);
}

/** Whether the last holder has written a record. */
const HAS_WRITTEN = sql`
  EXISTS (
    SELECT 1 FROM lockstep_step AS s
    WHERE s.run_id = lockstep_run.run_id AND s.part = lockstep_run.part
      AND s.epoch = lockstep_run.epoch)`;

/** 1 if the run was taken over from a process that was lost, and nobody has written a record since. */
export const TAKEN_OVER = sql`CASE WHEN lockstep_run.taken_over = 1 AND NOT ${HAS_WRITTEN} THEN 1 ELSE 0 END`;

/** What a claim counts. All of it is 0 for a run that was never claimed. */
const COUNTS = sql`
  blocks = CASE WHEN status = 'running' AND ${HAS_WRITTEN} THEN 0 ELSE blocks END,
  crashes = CASE
    WHEN status = 'blocked' THEN crashes
    WHEN status <> 'running' OR ${HAS_WRITTEN} THEN 0
    ELSE crashes + 1 END,
  taken_over = CASE WHEN status = 'running' THEN 1 ELSE ${TAKEN_OVER} END,`;

/** Claims the due runs that meet the condition. Fails, as `claimRun` does, for a process that could execute steps and not record them. */
export function updateToRunning(
  dialect: Dialect,
  condition: Sql,
  { owner, ttl }: Omit<RunLeaseRequest, "runId">,
  { mark, areNew = false }: { readonly mark: string; readonly areNew?: boolean },
): Sql {
  const { now } = dialect;
  // The counts come first: they read the old status and epoch, and MySQL assigns from left to right.
  return sql`
    UPDATE lockstep_run
    SET ${areNew ? sql`` : COUNTS}
      status = 'running', epoch = epoch + 1, owner = ${owner}, claimed_by = ${mark}, reason = NULL, waits_for = NULL,
      in_progress = NULL, due_at = ${now} + ${micros(ttl)}, changed_at = ${now},
      cancelled = CASE WHEN cancelled = 1 THEN 2 ELSE cancelled END
    WHERE ${canRecord(dialect)} AND ${condition} AND due_at <= ${now} AND claimed_by <> ${mark}`;
}

/** Reads the runs that the call with this mark has claimed. */
export function readClaimed({ now }: Dialect, runIds: readonly string[], mark: string): Sql {
  return sql`
    SELECT ${FACTS}, input, ${now} AS now FROM lockstep_run AS r
    WHERE r.run_id IN (${list(runIds)}) AND ${isClaimedBy(mark)}`;
}

/** Reads the signals of these runs if the call with this mark has claimed them, and a page of each one's records. */
export function readHistories(runIds: readonly string[], mark: string): readonly Sql[] {
  if (runIds.length === 0) return [];
  return [
    sql`
      SELECT s.run_id, ${SIGNAL} FROM lockstep_run AS r
      JOIN lockstep_signal AS s ON s.run_id = r.run_id
      WHERE r.run_id IN (${list(runIds)}) AND ${isClaimedBy(mark)} AND s.part IS NULL ORDER BY s.seq`,
    ...runIds.map((runId) => selectPage(runId, {}, isClaimedBy(mark))),
  ];
}

/** A condition on the run `r`. */
function isClaimedBy(mark: string): Sql {
  return sql`r.claimed_by = ${mark} AND r.status = 'running'`;
}

interface RunRows {
  readonly row: Row;
  readonly records: readonly Row[];
  readonly signals: readonly Row[];
}

function toClaimResult(context: SqlJournalContext, rows: RunRows): RunClaimResult {
  const { row } = rows;
  return isOurs(row) ? { kind: "claimed", ...toClaimedRun(context, rows) } : toRunState(row);
}

export function toClaimedRun(
  { lastWrites }: SqlJournalContext,
  { row, records, signals }: RunRows,
): ClaimedRun {
  const epoch = asBigInt(row.epoch);
  const page = toPage(records);
  // The first write need not look for the last record.
  if (page.next === undefined) {
    lastWrites.record({ runId: asText(row.run_id), epoch }, asBigInt(records.at(-1)?.at ?? 0));
  }
  return {
    epoch,
    workflow: asText(row.workflow),
    version: asNumber(row.version),
    part: asNumber(row.part),
    startedAt: toDate(row.started_at),
    signalsSeen: asNumber(row.signals),
    takenOver: asNumber(row.taken_over) === 1,
    crashes: asNumber(row.crashes),
    blocks: asNumber(row.blocks),
    cancelled: asNumber(row.cancelled) > 0,
    input: asText(row.input),
    parent: toParent(row),
    ...page,
    signals: signals.map(toSignal),
    now: toDate(row.now),
  };
}
