/** Locks, stock and runs in PostgreSQL. */

import { checkOpening } from "../../lock/checks.ts";
import { checkOptionNames } from "../../lock/options.ts";
import { STORE_OPTIONS } from "../options.ts";
import { type SqlStore, type SqlStoreOptions, sqlStore } from "../sql/store.ts";
import { type PostgresOptions, postgresDatabase } from "./database.ts";
import { optionsOf, type PgPool } from "./handed-in.ts";
import { loadPg } from "./pg.ts";

export { migrate } from "../sql/migrate.ts";
export type { SqlStore } from "../sql/store.ts";
export type { TransactionalInventory } from "../transactional-inventory.ts";

/**
 * Opens a database of PostgreSQL 13 or later. Connects on first use.
 *
 *     await using shop = await openPostgres({ host: "127.0.0.1", user: "shop", database: "shop" });
 *     await migrate(shop.database); // makes the tables, as `lockstep migrate` does
 *
 * An acknowledged lock survives a restart of the server if its commits are durable (synchronous_commit = on). Expiry goes
 * by the server's clock. A `Pool` of pg in place of the options gives its settings. Rejects with a TypeError when the package pg is not installed.
 */
export async function openPostgres(
  connection: PostgresOptions | PgPool,
  options: SqlStoreOptions = {},
): Promise<SqlStore> {
  checkOpening("openPostgres", connection, '{ host: "127.0.0.1", user: "shop", database: "shop" }');
  checkOptionNames("openPostgres", options, STORE_OPTIONS);
  await loadPg();
  return sqlStore(postgresDatabase(optionsOf(connection)), options);
}
