import { type Database, sql } from "../../core/database/sql.ts";
import type { Journal } from "../../core/journal/journal.ts";
import { sqlJournal } from "../../core/journal/sql.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { mysqlStore, openMysql } from "../../core/stores/mysql/index.ts";
import { openSqlite, sqliteStore } from "../../core/stores/sqlite/index.ts";
import { migrate } from "../../infra/migrate.ts";
import type { SqlServer } from "./sql-servers.ts";
import { temporaryDatabase, temporaryFile } from "./under-test.ts";

/** A journal in a database, locks, and a table of their effects. */
export interface DatabaseUnderTest {
  readonly url: string;
  open(): { readonly journal: Journal; readonly locks: LockStore };

  /** Has lockstep's tables, and `effect` (name TEXT), where steps leave what they have done. */
  readonly database: Database;
  close(): Promise<void>;
}

export async function sqliteSteps(): Promise<DatabaseUnderTest> {
  const { file, remove } = await temporaryFile();
  const open = () => openSqlite(file);
  return databaseUnderTest(`sqlite:${file}`, open, sqliteStore, remove);
}

export async function mysqlSteps(server: SqlServer): Promise<DatabaseUnderTest> {
  const { url, options, drop } = await temporaryDatabase(server);
  return databaseUnderTest(url, () => openMysql({ ...options, connections: 4 }), mysqlStore, drop);
}

async function databaseUnderTest(
  url: string,
  openDatabase: () => Database,
  store: (database: Database, options: { closeDatabase: true }) => LockStore,
  remove: () => Promise<void>,
): Promise<DatabaseUnderTest> {
  const database = openDatabase();
  await migrate(database);
  await database.packet([sql`CREATE TABLE effect (name VARCHAR(255) NOT NULL)`]);
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
