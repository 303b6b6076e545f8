import { type Database, sql } from "../../core/database/sql.ts";
import type { Journal } from "../../core/journal/journal.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { sqlLocks } from "../../core/stores/sql/locks.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import type { SqlServer } from "./sql-servers.ts";
import { temporaryDatabase, temporaryFile } from "./under-test.ts";

/** A journal and locks in a database, with a table for the effects of steps. */
export interface DatabaseUnderTest {
  readonly url: string;
  open(): { readonly journal: Journal; readonly locks: LockStore };

  /** The database with the tables of lockstep and the table `effect` (name TEXT). */
  readonly database: Database;
  close(): Promise<void>;
}

export async function sqliteSteps(): Promise<DatabaseUnderTest> {
  const { file, remove } = await temporaryFile();
  const open = () => sqliteDatabase(file);
  return databaseUnderTest(`sqlite:${file}`, open, sqlLocks, remove);
}

export async function sqlServerSteps(server: SqlServer): Promise<DatabaseUnderTest> {
  const { url, open, drop } = await temporaryDatabase(server);
  return databaseUnderTest(url, () => open({ connections: 2 }), sqlLocks, drop);
}

async function databaseUnderTest(
  url: string,
  openDatabase: () => Database,
  store: (database: Database, options: { closeDatabase: true }) => LockStore,
  remove: () => Promise<void>,
): Promise<DatabaseUnderTest> {
  const database = openDatabase();
  await migrate(database);
  await database.batch([sql`CREATE TABLE effect (name VARCHAR(255) NOT NULL)`]);
  return {
    url,
    database,
    open() {
      const own = openDatabase();
      return { journal: sqlJournal(own), locks: store(own, { closeDatabase: true }) };
    },
    async close() {
      await database.close();
      await remove();
    },
  };
}
