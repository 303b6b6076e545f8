import { type Database, type Row, type Sql, sql } from "../../../database/sql.ts";

/** The most SELECTs in one UNION. SQLite allows 500. */
const MOST_PARTS = 64;

/** Runs the SELECTs, which have the same columns, in as few reads as possible. */
export async function readUnion(
  database: Database,
  parts: readonly Sql[],
  limit?: AbortSignal,
): Promise<readonly Row[]> {
  // Workers allow five SELECTs in one UNION, and many in one round trip.
  if (database.dialect.isOptimistic) {
    const results = await database.batch(parts, limit);
    return results.flatMap((result) => result.rows);
  }
  const rows: Row[] = [];
  for (let i = 0; i < parts.length; i += MOST_PARTS) {
    const union = parts
      .slice(i, i + MOST_PARTS)
      .map((part) => sql`SELECT * FROM (${part}) AS part`)
      .reduce((all, part) => sql`${all} UNION ALL ${part}`);
    rows.push(...(await database.read(union, limit)));
  }
  return rows;
}
