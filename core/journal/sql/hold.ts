import {
  asBigInt,
  asNumber,
  asText,
  type Database,
  type Row,
  type Sql,
  sql,
} from "../../database/sql.ts";
import { quote } from "../../lock/errors.ts";
import { insist } from "../../lock/insist.ts";
import type { Millis } from "../../lock/time.ts";
import {
  type Ending,
  type Parking,
  type Renewed,
  type RunKey,
  type RunStatus,
  StaleRunError,
} from "../journal.ts";
import { micros, timeIn } from "./rows.ts";
import { tellParent } from "./signals.ts";

export async function renew(
  database: Database,
  run: RunKey,
  ttl: Millis,
  signal: AbortSignal | undefined,
): Promise<Renewed | undefined> {
  const { now } = database.dialect;
  const later = sql`${now} + ${micros(ttl)}`;
  const renew = sql`
    UPDATE lockstep_run SET due_at = CASE WHEN due_at < ${later} THEN ${later} ELSE due_at END
    WHERE ${isHeld(run)}`;
  const read = sql`SELECT cancelled, signals FROM lockstep_run WHERE ${isHeld(run)}`;
  const what = `run ${quote(run.runId)} was renewed`;
  const [, answer] = await insist(database.address, what, signal, (limit) =>
    database.packet([renew, read], limit),
  );
  const [row] = answer?.rows ?? [];
  return row && { cancelled: asNumber(row.cancelled) > 0, signals: asNumber(row.signals) };
}

/** The signals are counted in the run's own row: a look at theirs could be too old by the time the row is locked. */
export async function park(
  database: Database,
  run: RunKey,
  { reason, wakeIn, signalsSeen }: Parking,
  signal: AbortSignal | undefined,
): Promise<void> {
  const { now } = database.dialect;
  const isCalled = sql`signals > ${signalsSeen} OR cancelled = 1`;
  const park = sql`
    UPDATE lockstep_run
    SET status = 'parked', reason = ${reason}, changed_at = ${now},
      due_at = CASE WHEN ${isCalled} THEN ${now} ELSE ${timeIn(now, wakeIn)} END
    WHERE ${isHeld(run)}`;
  const what = `run ${quote(run.runId)} was parked`;
  await insist(database.address, what, signal, async (limit) => {
    const [parked] = await database.packet([park], limit);
    if (parked?.affected !== 1) checkIs(["parked"], run, await readStatus(database, run, limit));
    return true;
  });
}

const ENDED: readonly RunStatus[] = ["completed", "failed", "cancelled"];

/** The ending and the signal to the parent, in one packet that may be sent again. */
export async function finish(
  database: Database,
  run: RunKey,
  ending: Ending,
  signal: AbortSignal | undefined,
): Promise<void> {
  const { now } = database.dialect;
  const { status, value, compensated, keep } = ending;
  const end = sql`
    UPDATE lockstep_run
    SET status = ${status}, reason = NULL, due_at = NULL, value = ${value},
      compensated = ${compensated ? 1 : 0}, changed_at = ${now}, expires_at = ${timeIn(now, keep)}
    WHERE ${isHeld(run)}`;
  const statements = [end, ...tellParent(database.dialect, run, ending), statusOf(run)];
  const what = `run ${quote(run.runId)} was ended`;
  await insist(database.address, what, signal, async (limit) => {
    const results = await database.packet(statements, limit);
    checkIs(ENDED, run, results.at(-1)?.rows ?? []);
    return true;
  });
}

function isHeld({ runId, epoch }: RunKey): Sql {
  return sql`run_id = ${runId} AND epoch = ${epoch} AND status = 'running'`;
}

function statusOf({ runId }: RunKey): Sql {
  return sql`SELECT epoch, status FROM lockstep_run WHERE run_id = ${runId}`;
}

function readStatus(database: Database, run: RunKey, limit: AbortSignal): Promise<readonly Row[]> {
  return database.read(statusOf(run), limit);
}

/** What was not changed now was changed by a request before, whose answer was lost; or the run has moved on. */
function checkIs(done: readonly RunStatus[], run: RunKey, [row]: readonly Row[]): void {
  const isOurs = row && asBigInt(row.epoch) === run.epoch;
  if (!isOurs || !done.includes(asText(row.status) as RunStatus)) throw new StaleRunError(run);
}
