/** Locks, stock and runs in MySQL or MariaDB. */

import { checkOpening } from "../../lock/checks.ts";
import { checkOptionNames } from "../../lock/options.ts";
import { STORE_OPTIONS } from "../options.ts";
import { type SqlStore, type SqlStoreOptions, sqlStore } from "../sql/store.ts";
import { type MysqlOptions, mysqlDatabase } from "./database.ts";
import { type Mysql2Pool, optionsOf } from "./handed-in.ts";
import { loadMysql2 } from "./mysql2.ts";

export { migrate } from "../sql/migrate.ts";
export type { SqlStore } from "../sql/store.ts";
export type { TransactionalInventory } from "../transactional-inventory.ts";

/**
 * Opens a database of MySQL 8.0.16 or later, or of MariaDB 10.6 or later. Connects on first use.
 *
 *     await using shop = await openMysql({ host: "127.0.0.1", user: "shop", database: "shop" });
 *     await migrate(shop.database); // makes the tables, as `lockstep migrate` does
 *
 * An acknowledged lock survives a restart of the server if its commits are durable (innodb_flush_log_at_trx_commit = 1).
 * Expiry goes by the server's clock. A pool of mysql2 in place of the options gives its settings. Rejects with a TypeError when the package mysql2 is not installed.
 */
export async function openMysql(
  connection: MysqlOptions | Mysql2Pool,
  options: SqlStoreOptions = {},
): Promise<SqlStore> {
  checkOpening("openMysql", connection, '{ host: "127.0.0.1", user: "shop", database: "shop" }');
  checkOptionNames("openMysql", options, STORE_OPTIONS);
  await loadMysql2();
  return sqlStore(mysqlDatabase(optionsOf(connection)), options);
}
