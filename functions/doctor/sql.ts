import { existsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { asNumber, asText, type Database, sql } from "../../core/database/sql.ts";
import { migrationStatus } from "../../core/stores/sql/migrate.ts";
import { type Finding, judgeVersion, note, ok, problem } from "./finding.ts";
import { examineMysql } from "./mysql.ts";
import { examinePostgres } from "./postgres.ts";

/** Examines a database: its product, its clock, and its tables. */
export async function* examineDatabase(
  database: Database,
  url: string,
  signal: AbortSignal,
): AsyncGenerator<Finding> {
  const missing = judgeMissingFile(url);
  if (missing) return yield missing;
  const examineProduct = EXAMINATIONS[database.dialect.name] ?? examineSqlite;
  yield* await examineProduct(database, signal);
  const { pending } = await migrationStatus(database, signal);
  const cure = 'run "lockstep migrate" with the same URL';
  if (pending.length === 0) yield ok("tables", "all migrations are applied");
  else yield problem("tables", `migrations are missing: ${pending.join(", ")}`, cure);
}

const EXAMINATIONS: Readonly<Record<string, typeof examineMysql>> = {
  mysql: examineMysql,
  postgres: examinePostgres,
};

const SQLITE_SETTINGS = sql`
  SELECT sqlite_version() AS version,
    (SELECT journal_mode FROM pragma_journal_mode) AS journal_mode,
    (SELECT synchronous FROM pragma_synchronous) AS synchronous`;

/** Tells of a SQLite file that does not exist: an empty database stands in for it. */
function judgeMissingFile(url: string): Finding | undefined {
  const [, file] = /^sqlite:(?:\/\/(?=\/))?(.+)/.exec(url) ?? [];
  if (file === undefined || file === ":memory:" || existsSync(file)) return undefined;
  const folder = dirname(resolve(file));
  if (existsSync(folder)) return note("tables", `${file} does not exist: the first write makes it`);
  return problem("tables", `the folder ${folder} does not exist`, "make it, or correct the URL");
}

async function examineSqlite(database: Database, signal: AbortSignal): Promise<readonly Finding[]> {
  const [row = {}] = await database.read(SQLITE_SETTINGS, signal);
  return [
    judgeVersion("SQLite", asText(row.version), "3.35"),
    judgeSqliteDurability(asText(row.journal_mode), asNumber(row.synchronous)),
  ];
}

/** Judges the settings of a connection. `synchronous`: 2 is FULL, 3 is EXTRA. */
export function judgeSqliteDurability(journalMode: string, synchronous: number): Finding {
  const settings = `journal_mode ${journalMode}, synchronous ${synchronous}`;
  if (synchronous < 2) {
    const loss = "a power cut loses commits that were acknowledged: locks, fences and sales";
    return problem("durability", `${settings}: ${loss}`, "set PRAGMA synchronous = FULL");
  }
  if (journalMode === "wal") return ok("durability", `${settings}: each commit is on disk`);
  const cost = "readers and the writer block each other";
  return note(
    "durability",
    `${settings}: ${cost}`,
    "keep the file on a local disk, not on a share",
  );
}

/** Resolves to the database's clock, in milliseconds since 1970. */
export async function readSqlClock(database: Database, signal: AbortSignal): Promise<number> {
  const [row] = await database.read(sql`SELECT ${database.dialect.now} AS now`, signal);
  return asNumber(row?.now) / 1_000;
}
