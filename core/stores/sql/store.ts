import type { Database } from "../../database/sql.ts";
import type { StockEventOptions } from "../../inventory/events.ts";
import type { Journal } from "../../journal/journal.ts";
import { type OpenStore, openLockStore } from "../../lock/open-store.ts";
import type { StoreOptions } from "../../lock/store.ts";
import type { TransactionalInventory } from "../transactional-inventory.ts";
import { sqlInventory } from "./inventory/index.ts";
import { sqlJournal } from "./journal/index.ts";
import { sqlLocks } from "./locks.ts";

/** A MySQL, MariaDB, PostgreSQL or SQLite database with everything that Lockstep keeps in one. */
export interface SqlStore extends OpenStore {
  readonly inventory: TransactionalInventory;
  readonly journal: Journal;

  /** For tables of your own. */
  readonly database: Database;
}

export interface SqlStoreOptions extends StoreOptions, StockEventOptions {}

/** Closes the database together with the locks. */
export function sqlStore(
  database: Database,
  { onStockEvent: onEvent, ...options }: SqlStoreOptions,
): SqlStore {
  return openLockStore({
    locks: sqlLocks(database, { ...options, closeDatabase: true }),
    inventory: sqlInventory(database, { onEvent }),
    journal: sqlJournal(database),
    database,
  });
}
