import { randomBytes } from "node:crypto";
import { dynamodbInventory } from "../../core/stores/dynamodb/inventory/index.ts";
import { dynamodbLocks } from "../../core/stores/dynamodb/locks/index.ts";
import { remove } from "../../core/stores/etcd/client/etcd.ts";
import { etcdClient } from "../../core/stores/etcd/client/grpc.ts";
import { etcdInventory } from "../../core/stores/etcd/inventory/index.ts";
import { etcdLocks } from "../../core/stores/etcd/locks/index.ts";
import { redisRestClient } from "../../core/stores/redis/client/rest.ts";
import { redisInventory } from "../../core/stores/redis/inventory/index.ts";
import { redisLocks } from "../../core/stores/redis/locks/index.ts";
import { redisStore } from "../../core/stores/redis/store.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { sqlLocks } from "../../core/stores/sql/locks.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import type { InventoryUnderTest } from "../conformance/inventory-suite.ts";
import { anyTable } from "./dynamodb-under-test.ts";
import type { EtcdServer } from "./etcd-servers.ts";
import { anyPrefix, openLocal, redisServer } from "./redis-under-test.ts";
import { RestProxy } from "./rest-proxy.ts";
import type { SqlServer } from "./sql-servers.ts";
import { temporaryDatabase, temporaryFile } from "./under-test.ts";

export async function sqliteInventory(): Promise<InventoryUnderTest> {
  const { file, remove } = await temporaryFile();
  const admin = sqliteDatabase(file);
  await migrate(admin);
  return {
    fencedByLock: false,
    open() {
      const database = sqliteDatabase(file);
      const locks = sqlLocks(database, { closeDatabase: true });
      // A listener must not change the behaviour.
      return { inventory: sqlInventory(database, { onEvent: () => {} }), locks };
    },
    async close() {
      await admin.close();
      await remove();
    },
  };
}

export async function sqlServerInventory(server: SqlServer): Promise<InventoryUnderTest> {
  const { open, drop } = await temporaryDatabase(server);
  const admin = open();
  await migrate(admin);
  return {
    fencedByLock: false,
    open() {
      const database = open();
      const locks = sqlLocks(database, { closeDatabase: true });
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
  const admin = etcdClient({ endpoints });
  return {
    fencedByLock: true,
    open() {
      const etcd = etcdClient({ endpoints });
      const locks = etcdLocks(etcd, { prefix, closeEtcd: true });
      return { inventory: etcdInventory(etcd, { prefix }), locks };
    },
    async close() {
      await admin.txn({ when: [], do: [remove({ prefix })] });
      await admin.close();
    },
  };
}

/** Opens stock in the shared Redis server of the tests, under a fresh prefix. */
export async function redisInventoryUnderTest(): Promise<InventoryUnderTest> {
  const prefix = anyPrefix();
  return {
    fencedByLock: false,
    open() {
      const redis = openLocal();
      const locks = redisLocks(redis, { prefix, closeRedis: true });
      return { inventory: redisInventory(redis, { prefix }), locks };
    },
    close: async () => {},
  };
}

export async function redisRestInventoryUnderTest(): Promise<InventoryUnderTest> {
  const prefix = anyPrefix();
  const rest = await RestProxy.to(redisServer("redis").ports[0] ?? 0);
  return {
    fencedByLock: false,
    open() {
      const { locks, inventory } = redisStore(redisRestClient(rest), { prefix });
      return { inventory, locks };
    },
    close: () => rest[Symbol.asyncDispose](),
  };
}

export async function dynamodbInventoryUnderTest(): Promise<InventoryUnderTest> {
  const table = await anyTable();
  return {
    fencedByLock: false,
    open() {
      const dynamodb = table.open();
      const locks = dynamodbLocks(dynamodb, { closeDynamodb: true });
      return { inventory: dynamodbInventory(dynamodb), locks };
    },
    close: async () => {},
  };
}
