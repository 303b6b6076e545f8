import { asBigInt, asNumber, asText, type Database, type Sql, sql } from "../../../database/sql.ts";
import { MOST_FORKS } from "../../../journal/journal.ts";
import type { QueueDepth, RunDetails, RunInfo, RunQuery } from "../../../journal/queries.ts";
import type { RecordPage, StepRecord } from "../../../journal/records.ts";
import { unknownCursor } from "../../../journal/validated.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { toMillis } from "../micros.ts";
import { readValues } from "./large-values.ts";
import { selectPage, toPage } from "./pages.ts";
import {
  INFO_AND_ERROR,
  isKept,
  RECORD,
  SIGNAL,
  toDate,
  toInfo,
  toRecord,
  toResult,
  toSignal,
} from "./rows.ts";

export async function list(
  database: Database,
  { workflow, status, queue, key, after, limit = 100 }: RunQuery,
): Promise<readonly RunInfo[]> {
  const { now } = database.dialect;
  const conditions: readonly Sql[] = [
    ...(workflow === undefined ? [] : [sql`AND workflow = ${workflow}`]),
    ...(status === undefined ? [] : [sql`AND status = ${status}`]),
    ...(queue === undefined ? [] : [sql`AND queue = ${queue}`]),
    ...(key === undefined ? [] : [sql`AND turn_key = ${key}`]),
    ...(after === undefined ? [] : [await isAfter(database, after)]),
  ];
  const wanted = conditions.reduce((all, one) => sql`${all} ${one}`, isKept(now));
  const rows = await database.read(sql`
    SELECT ${INFO_AND_ERROR} FROM lockstep_run WHERE ${wanted}
    ORDER BY started_at DESC, run_id DESC LIMIT ${limit}`);
  return rows.map(toInfo);
}

export async function queueDepths(database: Database): Promise<readonly QueueDepth[]> {
  const { now } = database.dialect;
  const count = (condition: Sql) => sql`COUNT(CASE WHEN ${condition} THEN 1 END)`;
  const rows = await database.read(sql`
    SELECT queue,
      ${count(sql`status = 'running'`)} AS running,
      ${count(sql`status = 'parked'`)} AS parked,
      ${count(sql`status = 'blocked'`)} AS blocked,
      ${count(sql`due_at <= ${now}`)} AS due,
      ${now} - MIN(due_at) AS oldest_due_for
    FROM lockstep_run WHERE status IN ('running', 'parked', 'blocked')
    GROUP BY queue ORDER BY queue`);
  return rows.map((row) => ({
    queue: asText(row.queue),
    running: asNumber(row.running),
    parked: asNumber(row.parked),
    blocked: asNumber(row.blocked),
    due: asNumber(row.due),
    oldestDueFor: Math.max(0, toMillis(row.oldest_due_for ?? 0)),
  }));
}

/** A condition: the run is listed after the one with this id. */
async function isAfter(database: Database, runId: string): Promise<Sql> {
  const [row] = await database.read(
    sql`SELECT started_at FROM lockstep_run WHERE run_id = ${runId}`,
  );
  if (row === undefined) throw unknownCursor(runId);
  const at = asBigInt(row.started_at);
  return sql`AND started_at <= ${at} AND (started_at < ${at} OR run_id < ${runId})`;
}

export async function find(database: Database, runId: string): Promise<RunInfo | undefined> {
  const { now } = database.dialect;
  const read = sql`SELECT ${INFO_AND_ERROR} FROM lockstep_run WHERE run_id = ${runId} AND ${isKept(now)}`;
  const [row] = await retryUntilKnown(database.address, "a run was read", undefined, (limit) =>
    database.read(read, limit),
  );
  return row && toInfo(row);
}

export async function latest(
  database: Database,
  runId: string,
  prefix: string,
): Promise<StepRecord | undefined> {
  const { now } = database.dialect;
  const read = sql`
    SELECT ${RECORD}, s.part FROM lockstep_run AS r
    JOIN lockstep_step AS s ON s.run_id = r.run_id AND s.part IN (r.part, r.part - 1)
    WHERE r.run_id = ${runId} AND ${isKept(now)}
      AND s.step_key >= ${prefix} AND SUBSTR(s.step_key, 1, LENGTH(${prefix})) = ${prefix}
    ORDER BY s.part DESC, s.at DESC, s.step_key DESC LIMIT 1`;
  const [row] = await retryUntilKnown(database.address, "a record was read", undefined, (limit) =>
    database.read(read, limit),
  );
  const record = row && toRecord(row);
  if (record?.valueBytes === undefined) return record;
  const { key } = record;
  return { ...record, value: (await readValues(database, runId, [key], row?.part)).get(key) };
}

export async function show(
  database: Database,
  runId: string,
  page: RecordPage = {},
): Promise<RunDetails | undefined> {
  const { now } = database.dialect;
  const statements = [
    sql`
      SELECT ${INFO_AND_ERROR}, input, value, compensated, ${now} AS now
      FROM lockstep_run WHERE run_id = ${runId} AND ${isKept(now)}`,
    selectPage(runId, page),
    sql`SELECT ${SIGNAL} FROM lockstep_signal AS s
      WHERE s.run_id = ${runId} AND s.part IS NULL ORDER BY s.seq`,
    sql`
      SELECT run_id FROM lockstep_run WHERE origin_run = ${runId} AND ${isKept(now)}
      ORDER BY started_at, run_id LIMIT ${MOST_FORKS}`,
  ];
  const results = await retryUntilKnown(database.address, "a run was read", undefined, (limit) =>
    database.batch(statements, limit),
  );
  const [run = [], records = [], signals = [], forks = []] = results.map(({ rows }) => rows);
  const [row] = run;
  return (
    row && {
      ...toInfo(row),
      input: asText(row.input),
      ...toPage(records, page),
      signals: signals.map(toSignal),
      ending: toResult(row),
      forks: forks.map((fork) => asText(fork.run_id)),
      now: toDate(row.now),
    }
  );
}
