import { readdir, readFile } from "node:fs/promises";
import { asNumber, type Database, type Sql, sql } from "../core/database/sql.ts";
import { deadline, noAnswer } from "../core/lock/abort.ts";

/** Changes of a schema may have to wait for whoever uses it, and for another migration. */
const PATIENCE = 60_000;

interface Migration {
  readonly version: number;
  readonly name: string;
  readonly statements: readonly Sql[];
}

/**
 * Brings the tables up to date, and resolves to the names of the migrations that were applied.
 *
 * Two processes that start at once apply each migration once: the second waits for the first.
 */
export async function migrate(database: Database): Promise<readonly string[]> {
  const migrations = await readMigrations(database.dialect.name);
  const limit = deadline(PATIENCE, noAnswer);
  try {
    await prepare(database, limit.signal);
    return await applyPending(database, migrations, limit.signal);
  } finally {
    limit[Symbol.dispose]();
  }
}

/** The table of what was applied; its row 0 is what migrating processes queue for. */
async function prepare(database: Database, signal: AbortSignal): Promise<void> {
  const { onConflict } = database.dialect;
  const table = sql`CREATE TABLE IF NOT EXISTS lockstep_migration (version INTEGER NOT NULL PRIMARY KEY)`;
  const turnstile = sql`
    INSERT INTO lockstep_migration (version) VALUES (0) ${onConflict("version")} version = 0`;
  await database.packet([table], signal);
  await database.packet([turnstile], signal);
}

function applyPending(
  database: Database,
  migrations: readonly Migration[],
  signal: AbortSignal,
): Promise<readonly string[]> {
  const { exclusive, schemaCommits } = database.dialect;
  return database.transaction(async (tx) => {
    await tx.packet([sql`SELECT version FROM lockstep_migration WHERE version = 0 ${exclusive}`]);
    const [result] = await tx.packet([sql`SELECT version FROM lockstep_migration`]);
    const applied = new Set(result?.rows.map((row) => asNumber(row.version)));
    const pending = migrations.filter(({ version }) => !applied.has(version));
    for (const { statements } of pending) {
      for (const statement of statements) {
        // Over another connection, where it would end the transaction that keeps others out.
        await (schemaCommits ? database.packet([statement], signal) : tx.packet([statement]));
      }
    }
    await tx.commit(
      pending.map(
        ({ version }) => sql`INSERT INTO lockstep_migration (version) VALUES (${version})`,
      ),
    );
    return pending.map(({ name }) => name);
  }, signal);
}

async function readMigrations(dialect: string): Promise<readonly Migration[]> {
  const folder = new URL(`./migrations/${dialect}/`, import.meta.url);
  const files = (await readdir(folder)).sort();
  return Promise.all(
    files.map(async (name) => ({
      version: Number.parseInt(name, 10),
      name,
      statements: toStatements(await readFile(new URL(name, folder), "utf8")),
    })),
  );
}

/** Statements end with a semicolon at the end of a line, and nothing else does. */
function toStatements(text: string): readonly Sql[] {
  const statements = text.split(/;$/m).map((statement) => statement.trim());
  return statements.filter(Boolean).map((statement) => ({ texts: [statement], values: [] }));
}
