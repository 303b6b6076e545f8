import {
  asBigInt,
  asNumber,
  asText,
  type Database,
  exact,
  list,
  type Row,
  type Sql,
  sql,
} from "../../../database/sql.ts";
import type { BlockRequest, ParkRequest } from "../../../journal/changes.ts";
import { StaleRunError } from "../../../journal/journal.ts";
import type { RunKey, RunRenewal, RunStatus, StepInProgress } from "../../../journal/runs.ts";
import { quote } from "../../../lock/errors.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import type { Millis } from "../../../lock/time.ts";
import { micros } from "../micros.ts";
import { isHeld, timeIn } from "./rows.ts";

export async function renew(
  database: Database,
  run: RunKey,
  ttl: Millis,
  signal: AbortSignal | undefined,
  inProgress: readonly StepInProgress[] = [],
): Promise<RunRenewal | undefined> {
  const { now } = database.dialect;
  const later = sql`${now} + ${micros(ttl)}`;
  const steps = inProgress.length > 0 ? JSON.stringify(inProgress) : null;
  const renew = sql`
    UPDATE lockstep_run
    SET due_at = CASE WHEN due_at < ${later} THEN ${later} ELSE due_at END, in_progress = ${steps}
    WHERE ${isHeld(run)}`;
  const read = sql`SELECT cancelled, signals FROM lockstep_run WHERE ${isHeld(run)}`;
  const what = `run ${quote(run.runId)} was renewed`;
  const [, answer] = await retryUntilKnown(database.address, what, signal, (limit) =>
    database.batch([renew, read], limit, "renewals"),
  );
  const [row] = answer?.rows ?? [];
  return row && { cancelled: asNumber(row.cancelled) > 0, signals: asNumber(row.signals) };
}

/** Compares with the count of signals in the run's own row: a read of their table could be stale once the row is locked. */
export async function park(
  database: Database,
  run: RunKey,
  { reason, wakeIn, signalsSeen, lock, children }: ParkRequest,
  signal: AbortSignal | undefined,
): Promise<void> {
  const { now } = database.dialect;
  const wakeSignal = signalsSeen + (children?.count ?? 1);
  const isWoken = sql`last_sent > ${signalsSeen} OR signals >= ${wakeSignal} OR cancelled = 1`;
  const afterEnd = timeIn(now, Math.min(wakeIn, children?.within ?? 0));
  const park = sql`
    UPDATE lockstep_run
    SET status = 'parked', reason = ${reason}, waits_for = ${lock ?? null}, blocks = 0,
      changed_at = ${now},
      due_at = CASE
        WHEN ${isWoken} THEN ${now}
        WHEN signals > ${signalsSeen} THEN ${afterEnd}
        ELSE ${timeIn(now, wakeIn)} END,
      wake_signal = ${children ? wakeSignal : null},
      wake_within = ${children ? micros(children.within) : null}
    WHERE ${isHeld(run)}`;
  const what = `run ${quote(run.runId)} was parked`;
  await retryUntilKnown(database.address, what, signal, async (limit) => {
    const [parked] = await database.batch([park], limit);
    if (parked?.affected !== 1)
      checkStatus(["parked"], run, await readStatus(database, run, limit));
    return true;
  });
}

/** How long a run that is due counts as woken: longer than a worker needs to claim it. */
const WOKEN: Millis = 1_000;

/** Makes the oldest run due that is parked for the lock. */
export async function wakeWaiting(database: Database, lock: string): Promise<boolean> {
  const { now } = database.dialect;
  const isWaiting = sql`waits_for = ${lock} AND status = 'parked'`;
  const find = sql`
    SELECT run_id, due_at, CASE WHEN due_at > ${now} THEN 0 ELSE 1 END AS is_due FROM lockstep_run
    WHERE ${isWaiting} AND due_at > ${now} - ${micros(WOKEN)}
    ORDER BY started_at LIMIT 1`;
  const what = `a run that waits for lock ${quote(lock)} was woken`;
  return retryUntilKnown(database.address, what, undefined, async (limit) => {
    const [row] = await database.read(find, limit);
    if (row === undefined) return false;
    if (asNumber(row.is_due) === 1) return true;
    // Not a comparison with the time: that of a statement that waits for the row is in the past.
    const wake = sql`
      UPDATE lockstep_run SET due_at = ${now}
      WHERE run_id = ${asText(row.run_id)} AND ${isWaiting} AND due_at = ${asBigInt(row.due_at)}`;
    const [woken] = await database.batch([wake], limit);
    // Another client may have woken it.
    return woken?.affected === 1 ? true : undefined;
  });
}

export async function block(
  database: Database,
  run: RunKey,
  { error, blocks, retryIn }: BlockRequest,
  signal: AbortSignal | undefined,
): Promise<void> {
  const { now } = database.dialect;
  const block = sql`
    UPDATE lockstep_run
    SET status = 'blocked', value = ${error}, blocks = ${blocks}, changed_at = ${now},
      due_at = CASE WHEN cancelled = 1 THEN ${now} ELSE ${timeIn(now, retryIn)} END
    WHERE ${isHeld(run)}`;
  const what = `run ${quote(run.runId)} was blocked`;
  await retryUntilKnown(database.address, what, signal, async (limit) => {
    const [blocked] = await database.batch([block], limit);
    if (blocked?.affected !== 1)
      checkStatus(["blocked"], run, await readStatus(database, run, limit));
    return true;
  });
}

/** Parks a run whose cancellation was requested: it is due at once. */
export function parkCancelled(now: Sql, run: RunKey): Sql {
  return sql`
    UPDATE lockstep_run
    SET status = 'parked', reason = 'deadline', due_at = ${now}, changed_at = ${now}
    WHERE ${isHeld(run)} AND cancelled > 0`;
}

export function statusOf(runIds: readonly string[]): Sql {
  return sql`
    SELECT run_id, ${exact(sql`epoch`)} AS epoch, status, cancelled, part FROM lockstep_run
    WHERE run_id IN (${list(runIds)})`;
}

function readStatus(database: Database, run: RunKey, limit: AbortSignal): Promise<readonly Row[]> {
  return database.read(statusOf([run.runId]), limit);
}

/** Accepts a change that an earlier request made, whose answer was lost. Throws a StaleRunError otherwise. */
export function checkStatus(
  done: readonly RunStatus[],
  run: RunKey,
  [row]: readonly Row[],
): RunStatus {
  const status = row && asBigInt(row.epoch) === run.epoch ? asText(row.status) : undefined;
  if (!done.includes(status as RunStatus)) throw new StaleRunError(run);
  return status as RunStatus;
}
