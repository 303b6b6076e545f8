import { asNumber, type Database, sql } from "../../core/database/sql.ts";

/** Reads the clock by which a database ends locks, in microseconds since 1970. */
export async function databaseTime(database: Database): Promise<number> {
  const [row] = await database.read(sql`SELECT ${database.dialect.now} AS time`);
  return asNumber(row?.time);
}

/** Returns the time of an answer to TIME, in microseconds since 1970. */
export function redisTime(answer: unknown): number {
  const [seconds = 0, micros = 0] = (answer as readonly unknown[]).map(Number);
  return 1e6 * seconds + micros;
}
