/** Stores that a binding of Cloudflare's Workers opens. */

import type { Inventory } from "../../inventory/inventory.ts";
import { type OpenStore, openLockStore } from "../../lock/open-store.ts";
import { checkOptionNames } from "../../lock/options.ts";
import { STORE_OPTIONS } from "../options.ts";
import { sqlInventory } from "../sql/inventory/index.ts";
import { sqlLocks } from "../sql/locks.ts";
import { migrate } from "../sql/migrate.ts";
import { type SqlStore, type SqlStoreOptions, sqlStore } from "../sql/store.ts";
import { type D1Binding, d1Database } from "./d1.ts";
import { type ObjectNamespace, objectDatabase } from "./object-database.ts";

/** Opens the store in the object with this name, whose class comes from `lockstepObject`. */
export function openDurableObject(
  namespace: ObjectNamespace,
  name: string,
  options: SqlStoreOptions = {},
): SqlStore {
  checkOptionNames("open of a lockstepObject", options, STORE_OPTIONS);
  return sqlStore(objectDatabase(namespace, name), options);
}

/** Locks and stock in D1. The journal needs transactions of several calls, which D1 does not have. */
export interface D1Store extends OpenStore {
  /** Each change is one batch. */
  readonly inventory: Inventory;
}

/** The bindings whose tables this isolate has made or found. */
const migrated = new WeakSet<D1Binding>();

/**
 * Opens the locks and the stock in a D1 database, and makes the tables that are missing: `await openD1(env.DB)`.
 *
 * Open it within the request. For workflows, take a Durable Object.
 */
export async function openD1(binding: D1Binding, given: SqlStoreOptions = {}): Promise<D1Store> {
  checkOptionNames("openD1", given, STORE_OPTIONS);
  const { onStockEvent: onEvent, ...options } = given;
  const database = d1Database(binding);
  if (!migrated.has(binding)) await migrate(database);
  migrated.add(binding);
  const { within: _, ...inventory } = sqlInventory(database, { onEvent });
  return openLockStore({
    locks: sqlLocks(database, { ...options, closeDatabase: true }),
    inventory,
  });
}
