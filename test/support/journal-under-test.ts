import type { Database } from "../../core/database/sql.ts";
import { type SqlInventory, sqlInventory } from "../../core/inventory/sql.ts";
import type { Journal } from "../../core/journal/journal.ts";
import { memoryJournal } from "../../core/journal/memory.ts";
import { sqlJournal } from "../../core/journal/sql.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { memoryStore } from "../../core/stores/memory/index.ts";
import { mysqlStore, openMysql } from "../../core/stores/mysql/index.ts";
import { openSqlite, sqliteStore } from "../../core/stores/sqlite/index.ts";
import { migrate } from "../../infra/migrate.ts";
import type { SqlServer } from "./sql-servers.ts";
import { temporaryDatabase, temporaryFile } from "./under-test.ts";

/** A journal as the conformance suite takes it. */
export interface JournalUnderTest {
  /** For other processes; undefined where there can be none. */
  readonly url: string | undefined;

  /** Another client of the same journal. */
  open(): JournalClient;

  /** Another client of the same database, where there is one. */
  readonly openDatabase: (() => Database) | undefined;
  close(): Promise<void>;
}

export interface JournalClient {
  readonly journal: Journal;
  readonly locks: LockStore;
  readonly inventory: SqlInventory | undefined;
  close(): Promise<void>;
}

export async function memoryJournalUnderTest(): Promise<JournalUnderTest> {
  const [journal, locks] = [memoryJournal(), memoryStore()];
  return {
    url: undefined,
    open: () => ({ journal, locks, inventory: undefined, close: async () => {} }),
    openDatabase: undefined,
    close: () => locks.close(),
  };
}

export async function sqliteJournalUnderTest(): Promise<JournalUnderTest> {
  const { file, remove } = await temporaryFile();
  const admin = openSqlite(file);
  await migrate(admin);
  return {
    url: `sqlite:${file}`,
    open() {
      const database = openSqlite(file);
      return on(database, sqliteStore(database, { closeDatabase: true }));
    },
    openDatabase: () => openSqlite(file),
    async close() {
      await admin.close();
      await remove();
    },
  };
}

export async function mysqlJournalUnderTest(server: SqlServer): Promise<JournalUnderTest> {
  const { url, options, drop } = await temporaryDatabase(server);
  const admin = openMysql(options);
  await migrate(admin);
  return {
    url,
    open() {
      const database = openMysql(options);
      return on(database, mysqlStore(database, { closeDatabase: true }));
    },
    openDatabase: () => openMysql(options),
    async close() {
      await admin.close();
      await drop();
    },
  };
}

function on(database: Database, locks: LockStore): JournalClient {
  const [journal, inventory] = [sqlJournal(database), sqlInventory(database)];
  return { journal, locks, inventory, close: () => locks.close() };
}
