import { asText, type Database, type Row, raw, type Sql, sql } from "../../../database/sql.ts";
import { type PageOfRecords, RECORDS_PER_PAGE, type RecordPage } from "../../../journal/records.ts";
import { unknownPage } from "../../../journal/validated.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { partOf, RECORD, toRecord } from "./rows.ts";

/**
 * Reads a page of the run's records if the run, `r`, meets the condition, and one record more: there is a next page then.
 * A later page is of the same part as the first one. The limit stands in the text: SQLite prepares a statement with a
 * bound LIMIT again at each execution.
 */
export function selectPage(
  runId: string,
  { part, after, limit = RECORDS_PER_PAGE }: RecordPage,
  condition?: Sql,
): Sql {
  const cursor = after === undefined ? undefined : parseCursor(after);
  const isLater = cursor
    ? sql`AND s.at >= ${cursor.at} AND (s.at > ${cursor.at} OR s.step_key > ${cursor.key})`
    : sql``;
  const isReadable = condition
    ? sql`AND EXISTS (SELECT 1 FROM lockstep_run AS r WHERE r.run_id = ${runId} AND ${condition})`
    : sql``;
  return sql`
    SELECT ${RECORD} FROM lockstep_step AS s
    WHERE s.run_id = ${runId} AND s.part = ${cursor?.part ?? part ?? partOf(runId)} ${isReadable} ${isLater}
    ORDER BY s.run_id, s.part, s.at, s.step_key LIMIT ${raw(String(limit + 1))}`;
}

/** The part, time and key of the last record of a page. */
function parseCursor(cursor: string) {
  const [, part, at, key] = /^(\d{1,9})\/(\d{1,18})\/(.+)$/s.exec(cursor) ?? [];
  if (part === undefined || at === undefined || key === undefined) throw unknownPage(cursor);
  return { part: Number(part), at: BigInt(at), key };
}

export function toPage(
  rows: readonly Row[],
  { limit = RECORDS_PER_PAGE }: RecordPage = {},
): PageOfRecords {
  const page = rows.slice(0, limit);
  const last = rows.length > limit ? page.at(-1) : undefined;
  return {
    records: page.map(toRecord),
    next: last && `${last.part}/${last.at}/${asText(last.step_key)}`,
  };
}

export async function readPage(
  database: Database,
  runId: string,
  page: RecordPage,
): Promise<PageOfRecords> {
  const read = selectPage(runId, page);
  const rows = await retryUntilKnown(database.address, "records were read", undefined, (limit) =>
    database.read(read, limit),
  );
  return toPage(rows, page);
}
