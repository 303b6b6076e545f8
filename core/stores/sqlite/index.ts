/** Locks, stock and runs in a SQLite file. */

import { DatabaseSync } from "node:sqlite";
import { cannotOpen } from "../../lock/checks.ts";
import { checkOptionNames, type OptionNames } from "../../lock/options.ts";
import { STORE_OPTIONS } from "../options.ts";
import { migrate } from "../sql/migrate.ts";
import { type SqlStore, type SqlStoreOptions, sqlStore } from "../sql/store.ts";
import { sqliteDatabase } from "./database.ts";

export type { SqlStore } from "../sql/store.ts";
export type { TransactionalInventory } from "../transactional-inventory.ts";

// An import of node:fs would load Node's streams.
const { existsSync } = process.getBuiltinModule("node:fs");

interface SqliteOptions extends SqlStoreOptions {
  /**
   * Whether a file that is missing, or has no tables of Lockstep, gets them. Default true. If false, such a store is
   * empty, and nothing is written to the disk.
   */
  readonly create?: boolean;

  /**
   * Whether older tables are updated. Default true.
   *
   * @internal
   */
  readonly migrates?: boolean;
}

const SQLITE_OPTIONS = {
  ...STORE_OPTIONS,
  create: true,
  migrates: false,
} satisfies OptionNames<SqliteOptions>;

/**
 * Opens a file that several processes of one machine may share, or ":memory:", and makes or updates its tables.
 *
 * Locks expire by the machine's clock: stepping the clock forward frees a lock early, and the fence then refuses its old
 * holder. A file that is deleted or replaced while it is open is refused from the next call on, so the lock of a holder
 * in the old file ends with its ttl.
 *
 *     await using shop = await openSqlite("shop.db");
 *     await shop.inventory.set({ sku: "teapot", quantity: 10, operationId: "count-1" });
 */
export async function openSqlite(file: string, options: SqliteOptions = {}): Promise<SqlStore> {
  if (typeof file !== "string" || file === "" || file.includes("://")) {
    throw cannotOpen("openSqlite", file, 'a path such as "shop.db"');
  }
  checkOptionNames("openSqlite", options, SQLITE_OPTIONS);
  const { create = true, migrates = true, ...others } = options;
  const database = sqliteDatabase(create || hasTables(file) ? file : ":memory:");
  try {
    if (migrates) await migrate(database);
  } catch (error) {
    await database.close();
    throw error;
  }
  return sqlStore(database, others);
}

/** Whether the file has tables of Lockstep. True for an unreadable file as well: its first use tells the reason. */
function hasTables(file: string): boolean {
  if (!existsSync(file)) return false;
  try {
    using db = new DatabaseSync(file, { readOnly: true });
    const table = db.prepare("SELECT 1 FROM sqlite_master WHERE name = 'lockstep_migration'");
    return table.get() !== undefined;
  } catch {
    return true;
  }
}
