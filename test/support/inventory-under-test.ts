import { randomBytes } from "node:crypto";
import type { Database } from "../../core/database/sql.ts";
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
import { anyTable, dynamodbPort } from "./dynamodb-under-test.ts";
import {
  type ErrorAnswer,
  grpcAnswer,
  httpAnswer,
  mysqlAnswer,
  postgresAnswer,
  redisAnswer,
} from "./error-answers.ts";
import type { EtcdServer } from "./etcd-servers.ts";
import { anyPrefix, openLocal, redisServer } from "./redis-under-test.ts";
import { RestProxy } from "./rest-proxy.ts";
import type { SqlServer } from "./sql-servers.ts";
import { TcpProxy } from "./tcp-proxy.ts";
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
    openOverWire: undefined,
    async close() {
      await admin.close();
      await remove();
    },
  };
}

/** A proxy in front of a store, which ends with the store under test. */
class Wires {
  readonly #proxies: TcpProxy[] = [];

  async to(port: number, answer: ErrorAnswer): Promise<TcpProxy> {
    const proxy = await TcpProxy.toStore(port, answer);
    this.#proxies.push(proxy);
    return proxy;
  }

  async close(): Promise<void> {
    for (const proxy of this.#proxies) await proxy.close();
  }
}

export async function sqlServerInventory(server: SqlServer): Promise<InventoryUnderTest> {
  const { url, options, open, drop } = await temporaryDatabase(server);
  const admin = open();
  await migrate(admin);
  const wires = new Wires();
  const openOn = (database: Database) => {
    const locks = sqlLocks(database, { closeDatabase: true });
    return { inventory: sqlInventory(database), locks };
  };
  return {
    fencedByLock: false,
    open: () => openOn(open()),
    async openOverWire() {
      const answer = url.startsWith("postgres:") ? postgresAnswer : mysqlAnswer;
      const wire = await wires.to(options.port, answer);
      return { ...openOn(open({ port: wire.port })), wire };
    },
    async close() {
      await wires.close();
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
  const wires = new Wires();
  const openAt = (...endpoints: readonly string[]) => {
    const etcd = etcdClient({ endpoints });
    const locks = etcdLocks(etcd, { prefix, closeEtcd: true });
    return { inventory: etcdInventory(etcd, { prefix }), locks };
  };
  return {
    fencedByLock: true,
    open: () => openAt(...endpoints),
    async openOverWire() {
      const wire = await wires.to(Number(endpoints[0]?.split(":")[1]), grpcAnswer);
      return { ...openAt(`127.0.0.1:${wire.port}`), wire };
    },
    async close() {
      await wires.close();
      await admin.txn({ when: [], do: [remove({ prefix })] });
      await admin.close();
    },
  };
}

/** Opens stock in the shared Redis server of the tests, under a fresh prefix. */
export async function redisInventoryUnderTest(): Promise<InventoryUnderTest> {
  const prefix = anyPrefix();
  const [port = 0] = redisServer("redis").ports;
  const wires = new Wires();
  const openAt = (port?: number) => {
    const redis = openLocal(port === undefined ? {} : { port });
    const locks = redisLocks(redis, { prefix, closeRedis: true });
    return { inventory: redisInventory(redis, { prefix }), locks };
  };
  return {
    fencedByLock: false,
    open: () => openAt(),
    async openOverWire() {
      const wire = await wires.to(port, redisAnswer);
      return { ...openAt(wire.port), wire };
    },
    close: () => wires.close(),
  };
}

export async function redisRestInventoryUnderTest(): Promise<InventoryUnderTest> {
  const prefix = anyPrefix();
  const rest = await RestProxy.to(redisServer("redis").ports[0] ?? 0);
  const wires = new Wires();
  const openAt = (port: number) => {
    const url = `http://127.0.0.1:${port}`;
    const { locks, inventory } = redisStore(redisRestClient({ url, token: rest.token }), {
      prefix,
    });
    return { inventory, locks };
  };
  return {
    fencedByLock: false,
    open: () => openAt(rest.port),
    async openOverWire() {
      const wire = await wires.to(rest.port, httpAnswer);
      return { ...openAt(wire.port), wire };
    },
    async close() {
      await wires.close();
      await rest[Symbol.asyncDispose]();
    },
  };
}

export async function dynamodbInventoryUnderTest(): Promise<InventoryUnderTest> {
  const table = await anyTable();
  const wires = new Wires();
  const openAt = (port?: number) => {
    const dynamodb = table.open(port === undefined ? {} : { port });
    const locks = dynamodbLocks(dynamodb, { closeDynamodb: true });
    return { inventory: dynamodbInventory(dynamodb), locks };
  };
  return {
    fencedByLock: false,
    open: () => openAt(),
    async openOverWire() {
      const wire = await wires.to(dynamodbPort(), httpAnswer);
      return { ...openAt(wire.port), wire };
    },
    close: () => wires.close(),
  };
}
