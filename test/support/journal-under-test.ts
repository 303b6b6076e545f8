import type { Database } from "../../core/database/sql.ts";
import type { Journal } from "../../core/journal/journal.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { dynamodbJournal } from "../../core/stores/dynamodb/journal/index.ts";
import { dynamodbLocks } from "../../core/stores/dynamodb/locks/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { sqlLocks } from "../../core/stores/sql/locks.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import type { TransactionalInventory } from "../../core/stores/transactional-inventory.ts";
import { anyTable } from "./dynamodb-under-test.ts";
import { WHOLE_MATRIX } from "./matrix.ts";
import type { SqlServer } from "./sql-servers.ts";
import { temporaryDatabase, temporaryFile } from "./under-test.ts";

/** A journal for the conformance suite. */
export interface JournalUnderTest {
  /** The journal's URL for other processes. Undefined if it is in this process's memory. */
  readonly url: string | undefined;

  /** Whether a transaction that conflicts is repeated: it makes no other one wait. Default false. */
  readonly isOptimistic?: boolean;

  /** Whether texts with the character U+0000 are refused. Default false. */
  readonly refusesZero?: boolean;

  /** Why hundreds of records at a time are left to `npm run test:all`. Undefined: they are quick. */
  readonly slowness?: string;

  /** Opens another client of the same journal. */
  open(): JournalClient;

  /** Opens another client of the same database. Undefined without a database. */
  readonly openDatabase: (() => Database) | undefined;
  close(): Promise<void>;
}

/** The journal that the tests of a suite share. */
export interface JournalFixture {
  readonly underTest: JournalUnderTest;
  readonly journal: Journal;
}

export interface JournalClient {
  readonly journal: Journal;
  readonly locks: LockStore;
  readonly inventory: TransactionalInventory | undefined;
  close(): Promise<void>;
}

export async function memoryJournalUnderTest(): Promise<JournalUnderTest> {
  const [journal, locks] = [memoryJournal(), memoryLocks()];
  return {
    url: undefined,
    open: () => ({ journal, locks, inventory: undefined, close: async () => {} }),
    openDatabase: undefined,
    close: () => locks.close(),
  };
}

export async function sqliteJournalUnderTest(): Promise<JournalUnderTest> {
  const { file, remove } = await temporaryFile();
  const admin = sqliteDatabase(file);
  await migrate(admin);
  return {
    url: `sqlite:${file}`,
    open() {
      const database = sqliteDatabase(file);
      return on(database, sqlLocks(database, { closeDatabase: true }));
    },
    openDatabase: () => sqliteDatabase(file),
    async close() {
      await admin.close();
      await remove();
    },
  };
}

export async function sqlServerJournal(server: SqlServer): Promise<JournalUnderTest> {
  const { url, open, drop } = await temporaryDatabase(server);
  const admin = open();
  await migrate(admin);
  return {
    url,
    refusesZero: server.url.startsWith("postgres:"),
    open() {
      const database = open();
      return on(database, sqlLocks(database, { closeDatabase: true }));
    },
    openDatabase: () => open(),
    async close() {
      await admin.close();
      await drop();
    },
  };
}

export async function dynamodbJournalUnderTest(): Promise<JournalUnderTest> {
  const { url, open } = await anyTable();
  return {
    url,
    open() {
      const dynamodb = open();
      const locks = dynamodbLocks(dynamodb, { closeDynamodb: true });
      const journal = dynamodbJournal(dynamodb);
      return { journal, locks, inventory: undefined, close: () => locks.close() };
    },
    openDatabase: undefined,
    ...(!WHOLE_MATRIX && { slowness: "DynamoDB Local takes minutes for them: npm run test:all" }),
    close: async () => {},
  };
}

function on(database: Database, locks: LockStore): JournalClient {
  const [journal, inventory] = [sqlJournal(database), sqlInventory(database)];
  return { journal, locks, inventory, close: () => locks.close() };
}
