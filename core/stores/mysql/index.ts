import type { Database } from "../../database/sql.ts";
import type { LockStore, StoreTraits } from "../../lock/lock.ts";
import { type SqlStoreOptions, sqlStore } from "../sql-store.ts";

export { type MysqlOptions, type MysqlTls, openMysql } from "../../database/mysql.ts";

/**
 * Locks in MySQL 8.0.16 or later, or in MariaDB 10.6 or later.
 *
 * An acknowledged lock survives a restart of the server if its commits are durable
 * (innodb_flush_log_at_trx_commit = 1). Expiry goes by the server's clock.
 */
export function mysqlStore(database: Database, options?: SqlStoreOptions): LockStore {
  return sqlStore(database, mysqlTraits, options);
}

const mysqlTraits: StoreTraits = {
  name: "mysql",
  fair: false,
  watches: false,
  serverClock: true,
  shared: true,
  lockDelay: true,
  minTtl: 100,
};
