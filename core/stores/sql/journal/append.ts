import {
  asBigInt,
  asText,
  type Database,
  type Dialect,
  DuplicateKeyError,
  exact,
  list,
  type Row,
  type Sql,
  type SqlResult,
  sql,
} from "../../../database/sql.ts";
import { StaleRunError } from "../../../journal/journal.ts";
import type { NewRecord, StepRecord } from "../../../journal/records.ts";
import type { RunKey } from "../../../journal/runs.ts";
import { hasCode, quote } from "../../../lock/errors.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import type { Millis } from "../../../lock/time.ts";
import { micros, toMillis } from "../micros.ts";
import type { SqlJournalContext } from "./context.ts";
import { type LargeValue, toLargeValue, writeWith } from "./large-values.ts";
import type { WrittenRecord } from "./order.ts";
import { partOf, RECORD, toDate, toRecord } from "./rows.ts";

/**
 * Writes the record. One statement does if the time of the run's last record is known. A record's time is later than
 * those of all earlier records, whatever the database's clock does, because records are sorted by it.
 */
export async function append(
  context: SqlJournalContext,
  run: RunKey,
  record: NewRecord,
  signal: AbortSignal | undefined,
): Promise<StepRecord> {
  const { database } = context;
  using write = context.order.write(run);
  const large = toLargeValue(run, record);
  write.begin();
  const what = `record ${quote(record.key)} of run ${quote(run.runId)} was written`;
  const written = await retryUntilKnown(database.address, what, signal, async (limit) => {
    const last = context.lastWrites.get(run);
    try {
      const statements = insertRecord(database.dialect, run, record, last, large);
      const results = await writeWith(database, large, statements, limit);
      return toWritten(context, run, record, writtenAt(results), large);
    } catch (error) {
      if (!isRefusal(error)) throw error;
      const found = await existingRecord(database, run, record.key, limit);
      if (!found && !(error instanceof DuplicateKeyError)) throw error;
      return found;
    }
  });
  context.lastWrites.raise(run, written.at);
  // Awaited: the write ends with its delivery.
  return await write.deliver(written);
}

/** Reads the record that exists already, after a refusal to write it. Rejects when another process holds the run. */
export async function existingRecord(
  database: Database,
  run: RunKey,
  key: string,
  limit: AbortSignal,
): Promise<WrittenRecord | undefined> {
  return toState(run, await database.read(readState(database.dialect, run, key), limit));
}

/** Whether the database refused the insert: the run is held by another process, or the record exists. */
export function isRefusal(error: unknown): boolean {
  return error instanceof DuplicateKeyError || hasCode(error, "STORE_REFUSED");
}

/**
 * Inserts the record, and answers with its time. The insert fails with its transaction if this holder has lost the run: the
 * epoch is then NULL, which the column refuses. The lock on the run's row keeps others from claiming the run until the
 * transaction ends.
 */
export function insertRecord(
  dialect: Dialect,
  run: RunKey,
  record: NewRecord,
  last: bigint | undefined,
  large: LargeValue | undefined,
): readonly Sql[] {
  const { runId, epoch } = run;
  const { key, kind, outcome, attempt, argsHash, fence, took, waited } = record;
  const value = large ? undefined : record.value;
  const result = sql`
      ${kind}, ${outcome}, ${attempt}, ${value ?? null}, ${large?.id ?? null},
      ${large?.bytes ?? null}, ${argsHash ?? null}, ${fence ?? null}, ${spanOf(took)}, ${spanOf(waited)}`;
  if (dialect.hasFunctions) {
    return [
      sql`SELECT lockstep_append(${runId}, ${epoch}, ${last ?? null}, ${key}, ${result}) AS at`,
    ];
  }
  const { forShare, now, returnsRows, returning = (number) => number } = dialect;
  const lastAt =
    last ??
    sql`
    (SELECT m.last FROM (
      SELECT COALESCE(MAX(at), 0) AS last FROM lockstep_step
      WHERE run_id = ${runId} AND part = ${partOf(runId)}) AS m)`;
  const at = sql`CASE WHEN ${lastAt} < ${now} THEN ${now} ELSE ${lastAt} + 1 END`;
  const insert = sql`
    INSERT INTO lockstep_step (
      run_id, part, step_key, epoch, kind, outcome, attempt, value, value_id, value_bytes, args_hash, fence, took,
      waited, at)
    VALUES (
      ${runId}, ${partOf(runId)}, ${key}, (
        SELECT epoch FROM lockstep_run
        WHERE run_id = ${runId} AND epoch = ${epoch} AND status = 'running' ${forShare}),
      ${result}, ${returning(at)})
    ${returnsRows ? sql`RETURNING at` : sql``}`;
  const isAnswered = returnsRows || (last !== undefined && dialect.returning !== undefined);
  return isAnswered ? [insert] : [insert, selectWrittenAt(run, key)];
}

function spanOf(span: Millis | undefined): number | null {
  return span === undefined ? null : micros(span);
}

/** Reads the time of the record. */
function selectWrittenAt({ runId }: RunKey, key: string): Sql {
  return sql`
    SELECT at FROM lockstep_step
    WHERE run_id = ${runId} AND part = ${partOf(runId)} AND step_key = ${key}`;
}

/** The time with which `insertRecord` was answered. */
export function writtenAt(results: readonly SqlResult[]): bigint {
  const last = results.at(-1);
  return last?.returned ?? asBigInt(last?.rows[0]?.at);
}

export function toWritten(
  context: SqlJournalContext,
  run: RunKey,
  record: NewRecord,
  at: bigint,
  large: LargeValue | undefined,
): WrittenRecord {
  context.lastWrites.record(run, at);
  const { took, waited } = record;
  const written = {
    ...record,
    valueBytes: large?.bytes,
    took: took === undefined ? undefined : toMillis(micros(took)),
    waited: waited === undefined ? undefined : toMillis(micros(waited)),
    epoch: run.epoch,
    at: toDate(at),
  };
  return { record: written, at };
}

/** Reads the run's state, with the record if it exists. No row without such a run. */
export function readState(dialect: Dialect, { runId }: RunKey, key: string): Sql {
  if (dialect.hasFunctions) return sql`SELECT * FROM lockstep_read_state(${runId}, ${key})`;
  return sql`
    SELECT ${exact(sql`r.epoch`)} AS run_epoch, r.status, ${RECORD} FROM lockstep_run AS r
    LEFT JOIN lockstep_step AS s ON s.run_id = r.run_id AND s.part = r.part
      AND s.step_key = ${key}
    WHERE r.run_id = ${runId}`;
}

/**
 * A condition on a row of lockstep_run that is always true. It fails the statement where a function of this file is missing or may not
 * be executed. PostgreSQL checks that before it executes the statement, so no function is called. Behind a
 * constant condition such as 1 = 1, PostgreSQL would optimize the calls away.
 */
export function canRecord({ hasFunctions }: Dialect): Sql {
  if (!hasFunctions) return sql`1 = 1`;
  const record = list(Array(14).fill(null));
  return sql`(
    status <> '' OR lockstep_append(${record}) > 0
    OR EXISTS (SELECT 1 FROM lockstep_read_state(run_id, '')))`;
}

/** The record, if it exists. Throws a StaleRunError unless this holder has the run. */
export function toState(run: RunKey, [row]: readonly Row[]): WrittenRecord | undefined {
  const isOurs = row && asBigInt(row.run_epoch) === run.epoch && asText(row.status) === "running";
  if (!isOurs) throw new StaleRunError(run);
  if (row.step_key == null) return undefined;
  return { record: toRecord(row), at: asBigInt(row.at) };
}
