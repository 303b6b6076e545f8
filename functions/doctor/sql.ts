import { asNumber, asText, type Database, sql } from "../../core/database/sql.ts";
import { migrationStatus } from "../../core/stores/sql/migrate.ts";
import { type Finding, judgeVersion, ok, problem } from "./finding.ts";
import { examineMysql } from "./mysql.ts";
import { examinePostgres } from "./postgres.ts";

/** Examines a database: its product, its clock, and its tables. */
export async function* examineDatabase(
  database: Database,
  url: string,
  signal: AbortSignal,
): AsyncGenerator<Finding> {
  const examineProduct = EXAMINATIONS[database.dialect.name] ?? examineSqlite;
  yield* await examineProduct(database, signal);
  const { pending } = await migrationStatus(database, signal);
  const cure = `run "lockstep migrate --store ${url}"`;
  if (pending.length === 0) yield ok("tables", "all migrations are applied");
  else yield problem("tables", `migrations are missing: ${pending.join(", ")}`, cure);
}

const EXAMINATIONS: Readonly<Record<string, typeof examineMysql>> = {
  mysql: examineMysql,
  postgres: examinePostgres,
};

async function examineSqlite(database: Database, signal: AbortSignal): Promise<readonly Finding[]> {
  const [row] = await database.read(sql`SELECT sqlite_version() AS version`, signal);
  return [judgeVersion("SQLite", asText(row?.version), "3.35")];
}

/** Resolves to the database's clock, in milliseconds since 1970. */
export async function readSqlClock(database: Database, signal: AbortSignal): Promise<number> {
  const [row] = await database.read(sql`SELECT ${database.dialect.now} AS now`, signal);
  return asNumber(row?.now) / 1_000;
}
