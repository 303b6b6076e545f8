import type { Database } from "../../database/sql.ts";
import type { LockStore, StoreTraits } from "../../lock/lock.ts";
import { type SqlStoreOptions, sqlStore } from "../sql-store.ts";

export { openSqlite } from "../../database/sqlite.ts";

/**
 * Locks in a file that several processes of one machine share.
 *
 * Expiry goes by the machine's clock: stepping it forward frees a lock early, and the fence then refuses
 * its old holder.
 */
export function sqliteStore(database: Database, options?: SqlStoreOptions): LockStore {
  return sqlStore(database, sqliteTraits, options);
}

export const sqliteTraits: StoreTraits = {
  name: "sqlite",
  fair: false,
  watches: false,
  serverClock: true,
  shared: true,
  lockDelay: true,
  minTtl: 100,
};
