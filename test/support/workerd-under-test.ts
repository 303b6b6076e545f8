import { randomUUID } from "node:crypto";
import { afterAll, beforeAll } from "vitest";
import { type Database, sql } from "../../core/database/sql.ts";
import { pollingStore, type StoreOptions } from "../../core/lock/store.ts";
import {
  ObjectDatabase,
  objectDatabase,
  type SendCall,
} from "../../core/stores/cloudflare/object-database.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { sqlClaims, sqlLocks } from "../../core/stores/sql/locks.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import type { InventoryUnderTest } from "../conformance/inventory-suite.ts";
import { breakable } from "./breakable.ts";
import type { JournalUnderTest } from "./journal-under-test.ts";
import type { DatabaseUnderTest } from "./steps-under-test.ts";
import type { StoreUnderTest } from "./under-test.ts";
import { startWorkerd, type Workerd } from "./workerd.ts";

function workerdOfFile(): () => Workerd {
  let workerd: Workerd;
  beforeAll(async () => {
    workerd = await startWorkerd();
  });
  afterAll(() => workerd.stop());
  return () => workerd;
}

/** Starts workerd for the tests of a file, which share its D1 database. */
export function d1UnderTest() {
  const workerd = workerdOfFile();
  const { locks, inventory } = onDatabases("d1", async () => {
    const { lockstep } = workerd().objects.getByName("d1");
    const open = () => new ObjectDatabase("d1:", lockstep as SendCall, "d1");
    const admin = open();
    await migrate(admin);
    // An earlier suite may have raised it as far as it goes.
    await admin.batch([sql`UPDATE lockstep_store SET generation = 0`]);
    return open;
  });
  return { locks, inventory, workerd };
}

/** Starts workerd for the tests of a file. Each store under test is another Durable Object. */
export function objectsUnderTest() {
  const workerd = workerdOfFile();
  const suites = onDatabases("durable-objects", async () => {
    const name = randomUUID();
    return () => objectDatabase(workerd().objects, name);
  });
  return { ...suites, workerd };
}

/** What the conformance suites need, on databases that `create` makes. */
function onDatabases(name: string, create: () => Promise<() => Database>) {
  return {
    async locks(): Promise<StoreUnderTest> {
      const open = await create();
      const admin = open();
      return {
        name,
        url: undefined,
        open: (options?: StoreOptions) => sqlLocks(open(), { ...options, closeDatabase: true }),
        async openOverWire() {
          const { claims, wire } = breakable(sqlClaims(open()));
          return { store: pollingStore(claims), wire };
        },
        async erase(lock) {
          await admin.batch([sql`DELETE FROM lockstep_lock WHERE name = ${lock}`]);
        },
        close: () => admin.close(),
      };
    },

    async inventory(): Promise<InventoryUnderTest> {
      const open = await create();
      return {
        fencedByLock: false,
        open() {
          const database = open();
          const locks = sqlLocks(database, { closeDatabase: true });
          return { inventory: sqlInventory(database), locks };
        },
        openOverWire: undefined,
        close: async () => {},
      };
    },

    async journal(): Promise<JournalUnderTest> {
      const open = await create();
      return {
        url: undefined,
        isOptimistic: true,
        open() {
          const database = open();
          const locks = sqlLocks(database, { closeDatabase: true });
          const [journal, inventory] = [sqlJournal(database), sqlInventory(database)];
          return { journal, locks, inventory, close: () => locks.close() };
        },
        openDatabase: open,
        close: async () => {},
      };
    },

    async steps(): Promise<DatabaseUnderTest> {
      const open = await create();
      const database = open();
      await database.batch([sql`CREATE TABLE effect (name VARCHAR(255) NOT NULL)`]);
      return {
        url: "",
        database,
        open() {
          const own = open();
          return { journal: sqlJournal(own), locks: sqlLocks(own, { closeDatabase: true }) };
        },
        close: () => database.close(),
      };
    },
  };
}
