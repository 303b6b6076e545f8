import {
  asNumber,
  type Database,
  type Dialect,
  DuplicateKeyError,
  type Migration,
  type Row,
  raw,
  type Sql,
  sql,
  type Transaction,
} from "../../database/sql.ts";
import { deadline, noAnswer } from "../../lock/abort.ts";
import { wrongType } from "../../lock/checks.ts";
import { hasCode } from "../../lock/errors.ts";
import type { Millis } from "../../lock/time.ts";

/** The longest migration: a change of a schema waits for open transactions and for another migration. */
const LONGEST_MIGRATION: Millis = 60_000;

/** The longest time without a call of the transaction that keeps others out. */
const LONGEST_PAUSE: Millis = 3_000;

/**
 * Applies the pending migrations of the database, and resolves to their names.
 *
 * Concurrent processes apply each migration once: the second process waits for the first.
 */
export async function migrate(database: Database): Promise<readonly string[]> {
  if (!database?.dialect) throw wrongType("database", "the database of a SQL store", database);
  using limit = deadline(LONGEST_MIGRATION, noAnswer);
  if (await isCurrent(database, limit.signal)) return [];
  const migrations = await database.dialect.migrations();
  await prepare(database, limit.signal);
  const apply = database.dialect.isOptimistic ? applyInOneBatch : applyPending;
  return await apply(database, migrations, limit.signal);
}

/** Whether all migrations are applied. An error, such as that of a missing table, is left to the migration. */
async function isCurrent(database: Database, signal: AbortSignal): Promise<boolean> {
  const { migrationCount, applied } = database.dialect;
  const count = sql`
    SELECT COUNT(*) AS applied FROM (${applied}) AS a WHERE version BETWEEN 1 AND ${migrationCount}`;
  const rows = await database.read(count, signal).catch(() => []);
  return asNumber(rows[0]?.applied ?? 0) === migrationCount;
}

/** Which migrations the database has, and which it lacks. */
export interface MigrationStatus {
  readonly applied: readonly string[];
  readonly pending: readonly string[];
}

/** Reads which migrations are applied. Changes nothing. */
export async function migrationStatus(
  database: Database,
  signal?: AbortSignal,
): Promise<MigrationStatus> {
  const migrations = await database.dialect.migrations();
  const rows = await appliedVersions(database, signal);
  const missing = new Set(pendingOf(migrations, rows));
  const names = (all: readonly Migration[]) => all.map(({ name }) => name);
  return {
    applied: names(migrations.filter((each) => !missing.has(each))),
    pending: names([...missing]),
  };
}

/** No rows for a database without the table. */
async function appliedVersions(
  database: Database,
  signal: AbortSignal | undefined,
): Promise<readonly Row[]> {
  try {
    return await database.read(database.dialect.applied, signal);
  } catch (error) {
    if (!hasCode(error, "STORE_REFUSED")) throw error;
    return [];
  }
}

/** Makes the table of applied migrations, with row 0, whose lock admits one migrating process at a time. */
async function prepare(database: Database, signal: AbortSignal): Promise<void> {
  const table = sql`CREATE TABLE IF NOT EXISTS lockstep_migration (version INTEGER NOT NULL PRIMARY KEY)`;
  const make = () => database.batch([...database.dialect.besideTables, table], signal);
  // PostgreSQL refuses the second of two concurrent statements that make the same table, by a duplicate key, relation or
  // type. By then the table is there, and the repeated statement finds it.
  await make().catch(make);
  await database.batch([recordVersion(database.dialect, 0)], signal);
}

function applyPending(
  database: Database,
  migrations: readonly Migration[],
  signal: AbortSignal,
): Promise<readonly string[]> {
  const { dialect } = database;
  const { forUpdate, ddlCommits, applied } = dialect;
  return database.transaction(async (tx) => {
    await tx.batch([
      ...dialect.besideTables,
      sql`SELECT version FROM lockstep_migration WHERE version = 0 ${forUpdate}`,
    ]);
    const [result] = await tx.batch([applied]);
    const pending = pendingOf(migrations, result?.rows ?? []);
    for (const { script } of pending) {
      for (const statement of toStatements(script)) {
        // A statement that would commit the transaction goes over another connection: the transaction keeps others out.
        await (ddlCommits ? awake(tx, database.batch([statement], signal)) : tx.batch([statement]));
      }
    }
    await tx.commit(pending.map((migration) => recordVersion(dialect, versionOf(migration))));
    return pending.map(({ name }) => name);
  }, signal);
}

/**
 * Awaits the work, and queries the transaction meanwhile, because the server rolls an idle one back. Rejects if the server
 * has done so: nothing keeps other clients out then.
 */
async function awake(tx: Transaction, work: Promise<unknown>): Promise<void> {
  const calls: Promise<unknown>[] = [];
  const calling = setInterval(() => {
    const call = tx.batch([sql`SELECT 1`]);
    call.catch(() => {});
    calls.push(call);
  }, LONGEST_PAUSE);
  try {
    await work;
  } finally {
    clearInterval(calling);
  }
  await Promise.all(calls);
}

/** Of two migrating clients, the row of its version refuses the second one. */
async function applyInOneBatch(
  database: Database,
  migrations: readonly Migration[],
  signal: AbortSignal,
): Promise<readonly string[]> {
  const rows = await database.read(database.dialect.applied, signal);
  const pending = pendingOf(migrations, rows);
  if (pending.length === 0) return [];
  try {
    const scripts = pending.flatMap(({ script }) => toStatements(script));
    await database.batch([...pending.map(insertVersion), ...scripts], signal);
    return pending.map(({ name }) => name);
  } catch (error) {
    if (!(error instanceof DuplicateKeyError)) throw error;
    return applyInOneBatch(database, migrations, signal);
  }
}

function pendingOf(migrations: readonly Migration[], rows: readonly Row[]): readonly Migration[] {
  const applied = new Set(rows.map((row) => asNumber(row.version)));
  return migrations.filter((migration) => !applied.has(versionOf(migration)));
}

/** Records the version, unless it is recorded: functions may be made again. */
function recordVersion({ onConflict }: Dialect, version: number): Sql {
  return sql`
    INSERT INTO lockstep_migration (version) VALUES (${version})
    ${onConflict("version")} version = ${version}`;
}

function insertVersion(migration: Migration): Sql {
  return sql`INSERT INTO lockstep_migration (version) VALUES (${versionOf(migration)})`;
}

function versionOf({ name }: Migration): number {
  return Number.parseInt(name, 10);
}

function toStatements(script: string): readonly Sql[] {
  // The statements within a function's body end in semicolons, too.
  const statements = script.split(/;$(?![^$]*\$\$;)/m).map((statement) => statement.trim());
  return statements.filter(Boolean).map(raw);
}
