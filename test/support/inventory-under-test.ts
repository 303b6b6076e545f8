import { randomBytes } from "node:crypto";
import { remove } from "../../core/etcd/etcd.ts";
import { etcdInventory } from "../../core/inventory/etcd.ts";
import { observed } from "../../core/inventory/observed.ts";
import { redisInventory } from "../../core/inventory/redis.ts";
import { sqlInventory } from "../../core/inventory/sql.ts";
import { etcdStore, openEtcd } from "../../core/stores/etcd/index.ts";
import { mysqlStore, openMysql } from "../../core/stores/mysql/index.ts";
import { redisStore } from "../../core/stores/redis/index.ts";
import { openSqlite, sqliteStore } from "../../core/stores/sqlite/index.ts";
import { migrate } from "../../infra/migrate.ts";
import type { InventoryUnderTest } from "../conformance/inventory.ts";
import type { EtcdServer } from "./etcd-servers.ts";
import { anyPrefix, openLocal } from "./redis-under-test.ts";
import type { SqlServer } from "./sql-servers.ts";
import { temporaryDatabase, temporaryFile } from "./under-test.ts";

const SQL = { fencedByLock: false, expiredAfter: (expiresIn: number) => expiresIn + 20 } as const;

export async function sqliteInventory(): Promise<InventoryUnderTest> {
  const { file, remove } = await temporaryFile();
  const admin = openSqlite(file);
  await migrate(admin);
  return {
    ...SQL,
    open() {
      const database = openSqlite(file);
      const locks = sqliteStore(database, { closeDatabase: true });
      // Whoever watches it must not change what it does.
      return { inventory: observed(sqlInventory(database), () => {}), locks };
    },
    async close() {
      await admin.close();
      await remove();
    },
  };
}

export async function mysqlInventory(server: SqlServer): Promise<InventoryUnderTest> {
  const { options, drop } = await temporaryDatabase(server);
  const admin = openMysql(options);
  await migrate(admin);
  return {
    ...SQL,
    open() {
      const database = openMysql(options);
      const locks = mysqlStore(database, { closeDatabase: true });
      return { inventory: sqlInventory(database), locks };
    },
    async close() {
      await admin.close();
      await drop();
    },
  };
}

export async function etcdInventoryUnderTest({
  endpoints,
}: Pick<EtcdServer, "endpoints">): Promise<InventoryUnderTest> {
  const prefix = `test-${randomBytes(6).toString("hex")}/`;
  const admin = openEtcd({ endpoints });
  return {
    fencedByLock: true,
    // In whole seconds; etcd looks every half second for leases that have ended.
    expiredAfter: (expiresIn) => Math.ceil(expiresIn / 1_000) * 1_000 + 1_500,
    open() {
      const etcd = openEtcd({ endpoints });
      const locks = etcdStore(etcd, { prefix, closeEtcd: true });
      return { inventory: etcdInventory(etcd, { prefix }), locks };
    },
    async close() {
      await admin.txn({ when: [], do: [remove({ prefix })] });
      await admin.close();
    },
  };
}

/** Stock in the Redis server that all tests share, under a prefix that nobody else has. */
export async function redisInventoryUnderTest(): Promise<InventoryUnderTest> {
  const prefix = anyPrefix();
  return {
    fencedByLock: false,
    expiredAfter: (expiresIn) => expiresIn + 20,
    open() {
      const redis = openLocal();
      const locks = redisStore(redis, { prefix, closeRedis: true });
      return { inventory: redisInventory(redis, { prefix }), locks };
    },
    close: async () => {},
  };
}
