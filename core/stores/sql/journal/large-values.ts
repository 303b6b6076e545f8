import {
  asNumber,
  asText,
  type Database,
  list,
  type Row,
  type Sql,
  type SqlResult,
  sql,
  type Transaction,
} from "../../../database/sql.ts";
import { largeResult } from "../../../journal/large-result.ts";
import type { NewRecord } from "../../../journal/records.ts";
import type { RunKey } from "../../../journal/runs.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { partOf } from "./rows.ts";

/** The most bytes of a chunk. The default packets of all servers take a chunk in hexadecimal digits. */
const CHUNK = 1_048_576;

/** A large result of a record, in rows of its own. */
export interface LargeValue {
  readonly id: string;
  readonly bytes: number;

  /** Each inserts one chunk. */
  readonly inserts: readonly Sql[];
}

/** Returns the rows of a large result. Undefined for a value that stands in its record. */
export function toLargeValue({ runId }: RunKey, record: NewRecord): LargeValue | undefined {
  const bytes = largeResult(record);
  if (!bytes) return undefined;
  const id = crypto.randomUUID();
  const inserts = Array.from({ length: Math.ceil(bytes.length / CHUNK) }, (_, chunk) => {
    const data = bytes.subarray(chunk * CHUNK, (chunk + 1) * CHUNK);
    return sql`
      INSERT INTO lockstep_value (run_id, part, value_id, chunk, data)
      VALUES (${runId}, ${partOf(runId)}, ${id}, ${chunk}, ${data})`;
  });
  return { id, bytes: bytes.length, inserts };
}

/** Commits the value and the statements in one transaction: several chunks take a round trip each. */
export async function writeWith(
  database: Database,
  large: LargeValue | undefined,
  statements: readonly Sql[],
  limit: AbortSignal,
): Promise<readonly SqlResult[]> {
  const { inserts = [] } = large ?? {};
  if (inserts.length > 1) {
    return database.transaction((tx) => commitWith(tx, large, statements), limit);
  }
  const results = await database.batch([...inserts, ...statements], limit);
  return results.slice(inserts.length);
}

/** Commits the transaction with the value and the statements. Resolves to the results of the statements. */
export async function commitWith(
  tx: Transaction,
  large: LargeValue | undefined,
  statements: readonly Sql[],
): Promise<readonly SqlResult[]> {
  const { inserts = [] } = large ?? {};
  for (const insert of inserts.slice(0, -1)) await tx.batch([insert]);
  const last = inserts.slice(-1);
  return (await tx.commit([...last, ...statements])).slice(last.length);
}

/** Reads the large results of the records with these keys, of the current history unless `part` names another one. */
export async function readValues(
  database: Database,
  runId: string,
  keys: readonly string[],
  part?: unknown,
): Promise<ReadonlyMap<string, string>> {
  const ofPart = part === undefined ? partOf(runId) : sql`${asNumber(part)}`;
  const read = sql`
    SELECT s.step_key, v.chunk, v.data FROM lockstep_step AS s
    JOIN lockstep_value AS v ON v.run_id = s.run_id AND v.part = s.part
      AND v.value_id = s.value_id
    WHERE s.run_id = ${runId} AND s.part = ${ofPart} AND s.step_key IN (${list(keys)})`;
  const rows = await retryUntilKnown(database.address, "values were read", undefined, (limit) =>
    database.read(read, limit),
  );
  const chunks = Map.groupBy(rows, (row) => asText(row.step_key));
  return new Map([...chunks].map(([key, parts]) => [key, joined(parts)]));
}

/** A character's bytes may stand in two chunks. */
function joined(parts: readonly Row[]): string {
  const inOrder = parts.toSorted((a, b) => asNumber(a.chunk) - asNumber(b.chunk));
  const utf8 = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });
  const texts = inOrder.map(({ data }) => utf8.decode(data as Uint8Array, { stream: true }));
  return texts.join("") + utf8.decode();
}
