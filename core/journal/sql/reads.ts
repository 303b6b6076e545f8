import { asText, type Database, type Sql, sql } from "../../database/sql.ts";
import { insist } from "../../lock/insist.ts";
import type { DueQuery, RunDetails, RunInfo, RunQuery } from "../journal.ts";
import {
  INFO,
  isKept,
  RECORD,
  SIGNAL,
  toDate,
  toEnded,
  toInfo,
  toRecord,
  toSignal,
} from "./rows.ts";

export async function due(
  database: Database,
  { workflows, limit }: DueQuery,
  signal: AbortSignal | undefined,
): Promise<readonly string[]> {
  const { now } = database.dialect;
  const wanted = workflows
    .map(({ workflow, version }) => sql`(workflow = ${workflow} AND version = ${version})`)
    .reduce((some, one) => sql`${some} OR ${one}`);
  const read = sql`
    SELECT run_id FROM lockstep_run WHERE due_at <= ${now} AND (${wanted})
    ORDER BY due_at LIMIT ${limit}`;
  const rows = await insist(database.address, "runs were looked for", signal, (given) =>
    database.read(read, given),
  );
  return rows.map((row) => asText(row.run_id));
}

export async function list(
  database: Database,
  { workflow, status, limit = 100 }: RunQuery,
): Promise<readonly RunInfo[]> {
  const { now } = database.dialect;
  const conditions: readonly Sql[] = [
    ...(workflow === undefined ? [] : [sql`AND workflow = ${workflow}`]),
    ...(status === undefined ? [] : [sql`AND status = ${status}`]),
  ];
  const wanted = conditions.reduce((all, one) => sql`${all} ${one}`, isKept(now));
  const rows = await database.read(sql`
    SELECT ${INFO} FROM lockstep_run WHERE ${wanted}
    ORDER BY started_at DESC, run_id DESC LIMIT ${limit}`);
  return rows.map(toInfo);
}

export async function show(database: Database, runId: string): Promise<RunDetails | undefined> {
  const { now } = database.dialect;
  const statements = [
    sql`
      SELECT ${INFO}, input, value, compensated, ${now} AS now
      FROM lockstep_run WHERE run_id = ${runId} AND ${isKept(now)}`,
    sql`
      SELECT ${RECORD} FROM lockstep_step AS s WHERE s.run_id = ${runId} ORDER BY s.at, s.step_key`,
    sql`SELECT ${SIGNAL} FROM lockstep_signal AS s WHERE s.run_id = ${runId} ORDER BY s.seq`,
  ];
  const results = await insist(database.address, "a run was read", undefined, (limit) =>
    database.packet(statements, limit),
  );
  const [run = [], records = [], signals = []] = results.map(({ rows }) => rows);
  const [row] = run;
  return (
    row && {
      ...toInfo(row),
      input: asText(row.input),
      records: records.map(toRecord),
      signals: signals.map(toSignal),
      ending: toEnded(row),
      now: toDate(row.now),
    }
  );
}
