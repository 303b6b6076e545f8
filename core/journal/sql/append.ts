import {
  asBigInt,
  asText,
  type Database,
  type Dialect,
  DuplicateKeyError,
  type Result,
  type Row,
  type Sql,
  sql,
} from "../../database/sql.ts";
import { hasCode, quote } from "../../lock/errors.ts";
import { insist } from "../../lock/insist.ts";
import type { Millis } from "../../lock/time.ts";
import { type NewRecord, type RunKey, StaleRunError, type StepRecord } from "../journal.ts";
import type { Written } from "./order.ts";
import type { Place } from "./place.ts";
import { micros, RECORD, toDate, toMillis, toRecord } from "./rows.ts";

/**
 * Writes the record in one statement, once the last one that this holder has written is known: a record's time is
 * later than that of all before, whatever the database's clock does, since they are sorted by it.
 */
export async function append(
  place: Place,
  run: RunKey,
  record: NewRecord,
  signal: AbortSignal | undefined,
): Promise<StepRecord> {
  const { database } = place;
  using turn = place.order.turn(run);
  turn.begin();
  const what = `record ${quote(record.key)} of run ${quote(run.runId)} was written`;
  const stands = await insist(database.address, what, signal, async (limit) => {
    const { dialect } = database;
    const last = place.lastAt.get(run);
    const isAlone = last !== undefined && dialect.reply !== undefined;
    const more = isAlone ? [] : [readAt(run, record.key)];
    try {
      const results = await database.packet([insert(dialect, run, record, last), ...more], limit);
      return written(place, run, record, toAt(results));
    } catch (error) {
      return await standing(database, run, record.key, error, limit);
    }
  });
  return turn.of(stands);
}

/** The record that stands in the way of one that was refused. */
export async function standing(
  database: Database,
  run: RunKey,
  key: string,
  error: unknown,
  limit: AbortSignal,
): Promise<Written | undefined> {
  if (!isRefusal(error)) throw error;
  const found = toState(run, await database.read(readState(run, key), limit));
  if (!found && !(error instanceof DuplicateKeyError)) throw error;
  return found;
}

/** What the insert rejects with where the run has moved on, or the record stands. */
export function isRefusal(error: unknown): boolean {
  return error instanceof DuplicateKeyError || hasCode(error, "STORE_REFUSED");
}

/**
 * Fails, and with it all of its transaction, where the run is not this holder's any more: its epoch must not be
 * none. It reads the run's row so that it cannot be taken until the end of the transaction.
 */
export function insert(
  dialect: Dialect,
  { runId, epoch }: RunKey,
  record: NewRecord,
  last: bigint | undefined,
): Sql {
  const { key, kind, outcome, attempt, value, argsHash, fence, took, waited } = record;
  const { shared, now, reply = (number) => number } = dialect;
  const lastAt =
    last ??
    sql`
    (SELECT m.last FROM (
      SELECT COALESCE(MAX(at), 0) AS last FROM lockstep_step WHERE run_id = ${runId}) AS m)`;
  const at = sql`CASE WHEN ${lastAt} < ${now} THEN ${now} ELSE ${lastAt} + 1 END`;
  return sql`
    INSERT INTO lockstep_step (
      run_id, step_key, epoch, kind, outcome, attempt, value, args_hash, fence, took, waited, at)
    VALUES (
      ${runId}, ${key}, (
        SELECT epoch FROM lockstep_run
        WHERE run_id = ${runId} AND epoch = ${epoch} AND status = 'running' ${shared}),
      ${kind}, ${outcome}, ${attempt}, ${value ?? null}, ${argsHash ?? null}, ${fence ?? null},
      ${spanOf(took)}, ${spanOf(waited)}, ${reply(at)})`;
}

function spanOf(span: Millis | undefined): number | null {
  return span === undefined ? null : micros(span);
}

/** Says what the insert would have replied. */
export function readAt({ runId }: RunKey, key: string): Sql {
  return sql`SELECT at FROM lockstep_step WHERE run_id = ${runId} AND step_key = ${key}`;
}

export function toAt([inserted, read]: readonly Result[]): bigint {
  return inserted?.reply ?? asBigInt(read?.rows[0]?.at);
}

export function written(place: Place, run: RunKey, record: NewRecord, at: bigint): Written {
  place.lastAt.note(run, at);
  const { took, waited } = record;
  const stands = {
    ...record,
    took: took === undefined ? undefined : toMillis(micros(took)),
    waited: waited === undefined ? undefined : toMillis(micros(waited)),
    epoch: run.epoch,
    at: toDate(at),
  };
  return { record: stands, at };
}

/** The run as it is now, with the record if it stands; no row where there is no such run. */
export function readState({ runId }: RunKey, key: string): Sql {
  return sql`
    SELECT r.epoch AS run_epoch, r.status, ${RECORD} FROM lockstep_run AS r
    LEFT JOIN lockstep_step AS s ON s.run_id = r.run_id AND s.step_key = ${key}
    WHERE r.run_id = ${runId}`;
}

/** The record, if it stands. Throws a StaleRunError unless the run is this holder's. */
export function toState(run: RunKey, [row]: readonly Row[]): Written | undefined {
  const isOurs = row && asBigInt(row.run_epoch) === run.epoch && asText(row.status) === "running";
  if (!isOurs) throw new StaleRunError(run);
  if (row.step_key == null) return undefined;
  return { record: toRecord(row), at: asBigInt(row.at) };
}
