import {
  asNumber,
  asText,
  type Database,
  type Dialect,
  list,
  type Sql,
  type SqlResult,
  sql,
  type Transaction,
} from "../../../database/sql.ts";
import { Admission, type LimitedQueue } from "../../../journal/limits.ts";
import type { DueQuery, DueRun } from "../../../journal/queries.ts";
import type { WaitingRun } from "../../../journal/turn-order.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { dueInBacklogs } from "./backlogs.ts";
import { readClaimed, readHistories, toClaimedRun, updateToRunning } from "./claim.ts";
import type { SqlJournalContext } from "./context.ts";
import { isFrom, type RunSource, readDue, selectDue } from "./due-runs.ts";
import { countClaims, lockLimits, readUse } from "./limits.ts";

/** Due runs that are read for each run to claim: other processes take some of them. */
const RUNS_PER_CLAIM = 4;
const MIN_RUNS = 32;

/**
 * Claims due runs in the order of their turns.
 *
 * Without a due run, the call is one read. Otherwise a transaction locks the chosen runs, skips those that other
 * transactions have locked, and claims and reads them with its COMMIT.
 *
 * Repeats the call after a lost answer: the call's mark tells which runs an earlier attempt has claimed.
 */
export function claimDue(
  context: SqlJournalContext,
  query: DueQuery,
  signal: AbortSignal | undefined,
): Promise<readonly DueRun[]> {
  const { database } = context;
  const { dialect } = database;
  const mark = crypto.randomUUID();
  let sent: readonly string[] = [];
  return retryUntilKnown(database.address, "due runs were claimed", signal, async (limit) => {
    if (sent.length > 0) {
      const reads = [readClaimed(dialect, sent, mark), ...readHistories(sent, mark)];
      const claimed = toDueRuns(context, sent, await database.batch(reads, limit));
      if (claimed.length > 0) return claimed;
    }
    const waiting = context.turns.sort(await readWaiting(context, query, limit));
    if (waiting.length === 0) return [];
    return database.transaction(async (tx) => {
      const isFree = dialect.isOptimistic && !(await hasLimits(database, query, limit));
      // No row can be locked: the commit claims those of the first runs that are still due.
      const { runs, limits } = isFree
        ? { runs: waiting.slice(0, query.limit).map(asBegun), limits: undefined }
        : await lockAdmitted(database, tx, waiting, query);
      if (runs.length === 0) return [];
      sent = runs.map(({ runId }) => runId);
      const begun = runs.filter(({ isNew }) => !isNew).map(({ runId }) => runId);
      const reads = [readClaimed(dialect, sent, mark), ...readHistories(begun, mark)];
      const results = await tx.commit([
        updateToRunning(dialect, sql`run_id IN (${list(sent)})`, query, {
          mark,
          areNew: begun.length === 0,
        }),
        ...reads,
        ...[...Map.groupBy(runs, ({ queue }) => queue)].flatMap(([queue, own]) =>
          countClaims(dialect, limits?.get(queue) ?? {}, own),
        ),
      ]);
      const due = toDueRuns(context, begun, results.slice(1, 1 + reads.length));
      const claimed = new Set(due.map(({ runId }) => runId));
      for (const run of runs) if (claimed.has(run.runId)) context.turns.taken(run);
      return due.length > 0 ? due : undefined;
    }, limit);
  });
}

/** Reads the runs that are due longest, and those at the heads of other backlogs where there are many. */
async function readWaiting(
  context: SqlJournalContext,
  query: DueQuery,
  limit: AbortSignal,
): Promise<readonly WaitingRun[]> {
  const { database } = context;
  const { except = [], parent } = query;
  const most = Math.max(RUNS_PER_CLAIM * query.limit, MIN_RUNS) + except.length;
  const sources = query.queues.flatMap((queue) =>
    query.workflows.map((workflow): RunSource => ({ ...workflow, queue })),
  );
  const { now } = database.dialect;
  const ofParent = parent === undefined ? sql`` : sql`AND parent_run = ${parent}`;
  const parts = sources.map((source) => selectDue(now, sql`${isFrom(source)} ${ofParent}`, most));
  const due = await readDue(database, parts, limit);
  if (parent !== undefined) return due;
  const full = sources.filter(
    ({ queue, workflow, version }) =>
      due.filter(
        (run) => run.queue === queue && run.workflow === workflow && run.version === version,
      ).length >= most,
  );
  const heads =
    full.length > 0
      ? await dueInBacklogs(database, context.backlogs, full, query.limit, limit)
      : [];
  const found = new Map([...due, ...heads].map((run) => [run.runId, run]));
  for (const runId of except) found.delete(runId);
  return [...found.values()];
}

async function hasLimits(
  database: Database,
  { queues }: DueQuery,
  limit: AbortSignal,
): Promise<boolean> {
  return (await database.read(lockLimits(database.dialect, queues), limit)).length > 0;
}

/** Locks the first of the runs that the limits of their queues allow. Without limits, that is one round trip. */
async function lockAdmitted(
  { dialect }: Database,
  tx: Transaction,
  waiting: readonly WaitingRun[],
  { queues, limit, onHeldBack }: DueQuery,
): Promise<Admitted> {
  const first = waiting.slice(0, limit);
  const [limits, found] = await tx.batch([lockLimits(dialect, queues), lockDue(dialect, first)]);
  const limited = limits?.rows ?? [];
  if (limited.length > 0) {
    const limits = await readUse(dialect, tx, limited, waiting);
    const admission = new Admission(limits);
    const admitted = admission.take(waiting, limit);
    if (Number.isFinite(admission.retryIn)) onHeldBack?.(admission.retryIn);
    return { limits, runs: await lockRuns(dialect, tx, admitted, limit) };
  }
  const locked = foundOf(first, found);
  const others = await lockRuns(dialect, tx, waiting.slice(limit), limit - locked.length);
  return { runs: [...locked, ...others] };
}

interface LockedRun extends WaitingRun {
  /** Whether the run has neither records nor signals. */
  readonly isNew: boolean;
}

function asBegun(run: WaitingRun): LockedRun {
  return { ...run, isNew: false };
}

interface Admitted {
  readonly runs: readonly LockedRun[];

  /** Undefined without limits. */
  readonly limits?: ReadonlyMap<string, LimitedQueue>;
}

/** Locks the first of the runs that are still due and that no other transaction has locked. */
async function lockRuns(
  dialect: Dialect,
  tx: Transaction,
  waiting: readonly WaitingRun[],
  most: number,
): Promise<readonly LockedRun[]> {
  const locked: LockedRun[] = [];
  for (let next = 0; next < waiting.length && locked.length < most; ) {
    const wanted = waiting.slice(next, next + most - locked.length);
    next += wanted.length;
    const [found] = await tx.batch([lockDue(dialect, wanted)]);
    locked.push(...foundOf(wanted, found));
  }
  return locked;
}

function lockDue({ now, skipLocked }: Dialect, runs: readonly WaitingRun[]): Sql {
  const ids = list(runs.map(({ runId }) => runId));
  const isNew = sql`claimed_by = '' AND origin_run IS NULL AND signals = 0`;
  return sql`
    SELECT run_id, CASE WHEN ${isNew} THEN 1 ELSE 0 END AS is_new
    FROM lockstep_run WHERE run_id IN (${ids}) AND due_at <= ${now} ${skipLocked}`;
}

function foundOf(runs: readonly WaitingRun[], found: SqlResult | undefined): readonly LockedRun[] {
  const rows = new Map(found?.rows.map((row) => [asText(row.run_id), row]));
  return runs.flatMap((run) => {
    const row = rows.get(run.runId);
    return row ? { ...run, isNew: asNumber(row.is_new) === 1 } : [];
  });
}

/** Converts the answers of `readClaimed`, and of `readHistories` for runs that had begun. */
function toDueRuns(
  context: SqlJournalContext,
  begun: readonly string[],
  results: readonly SqlResult[],
): DueRun[] {
  const [runs = [], signals = [], ...histories] = results.map(({ rows }) => rows);
  const signalsOf = Map.groupBy(signals, (row) => asText(row.run_id));
  return runs.map((row) => {
    const runId = asText(row.run_id);
    const [records = [], received = []] = [histories[begun.indexOf(runId)], signalsOf.get(runId)];
    return { runId, ...toClaimedRun(context, { row, records, signals: received }) };
  });
}
