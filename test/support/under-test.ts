import { randomBytes } from "node:crypto";
import { join } from "node:path";
import mysql from "mysql2/promise";
import pg from "pg";
import { type Database, sql } from "../../core/database/sql.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import type { OpenStore } from "../../core/lock/open-store.ts";
import { pollingStore, type StoreOptions } from "../../core/lock/store.ts";
import type { Dynamodb } from "../../core/stores/dynamodb/client/dynamodb.ts";
import { dynamodbLocks } from "../../core/stores/dynamodb/locks/index.ts";
import { get, remove } from "../../core/stores/etcd/client/etcd.ts";
import { queueOf } from "../../core/stores/etcd/client/names.ts";
import { etcdLocks } from "../../core/stores/etcd/locks/index.ts";
import { etcdStore } from "../../core/stores/etcd/store.ts";
import { memoryClaims, memoryLocks, newMemory } from "../../core/stores/memory/locks.ts";
import { type MysqlOptions, mysqlDatabase } from "../../core/stores/mysql/database.ts";
import { type PostgresOptions, postgresDatabase } from "../../core/stores/postgres/database.ts";
import { keyOf } from "../../core/stores/redis/client/names.ts";
import { redisRestClient } from "../../core/stores/redis/client/rest.ts";
import { redisLocks } from "../../core/stores/redis/locks/index.ts";
import { redlockLocks } from "../../core/stores/redlock/locks.ts";
import { sqlClaims, sqlLocks } from "../../core/stores/sql/locks.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import { zookeeperClient } from "../../core/stores/zookeeper/client/client.ts";
import { queueOf as zookeeperQueueOf } from "../../core/stores/zookeeper/client/names.ts";
import { openZooKeeper } from "../../core/stores/zookeeper/index.ts";
import { zookeeperLocks } from "../../core/stores/zookeeper/locks/index.ts";
import { sortedBySequence } from "../../core/stores/zookeeper/locks/queue.ts";
import { temporaryFolder } from "../../infra/servers/reap.ts";
import { breakable, type Wire } from "./breakable.ts";
import { anyTable, dynamodbPort } from "./dynamodb-under-test.ts";
import {
  grpcAnswer,
  httpAnswer,
  mysqlAnswer,
  postgresAnswer,
  redisAnswer,
  zookeeperAnswer,
} from "./error-answers.ts";
import type { EtcdServer } from "./etcd-servers.ts";
import { openerOf, type TransportName } from "./etcd-under-test.ts";
import { anyPrefix, openLocal, redisServer } from "./redis-under-test.ts";
import { RestProxy } from "./rest-proxy.ts";
import type { SqlServer } from "./sql-servers.ts";
import { TcpProxy } from "./tcp-proxy.ts";
import { until } from "./until.ts";
import type { ZooKeeperServer } from "./zookeeper-servers.ts";

export type WithElections = Pick<OpenStore, "locks" | "elections">;

/** A store for the conformance suite. */
export interface StoreUnderTest {
  readonly name: string;

  /** The URL for other processes; undefined when they cannot open the store. */
  readonly url: string | undefined;

  /** Opens another client of the same store. */
  open(options?: StoreOptions): LockStore;

  /** Opens another client with elections of its own. Undefined: the elections are over the locks. */
  openWithElections?(): WithElections | Promise<WithElections>;

  /** Opens another client, over a wire that can be broken. */
  openOverWire(): Promise<{ readonly store: LockStore; readonly wire: Wire }>;

  /** Removes the record of a lock without its holder; the last token stays. */
  erase(name: string): Promise<void>;
  close(): Promise<void>;
}

export async function memoryUnderTest(): Promise<StoreUnderTest> {
  const memory = newMemory();
  return {
    name: "memory",
    url: undefined,
    open: (options) => memoryLocks({ ...options, memory }),
    async openOverWire() {
      const { claims, wire } = breakable(memoryClaims(memory));
      return { store: pollingStore(claims), wire };
    },
    async erase(name) {
      memory.locks.delete(name);
    },
    close: async () => {},
  };
}

export async function sqliteUnderTest(): Promise<StoreUnderTest> {
  const { file, remove } = await temporaryFile();
  const admin = sqliteDatabase(file);
  await migrate(admin);
  return {
    name: "sqlite",
    url: `sqlite:${file}`,
    open: (options) => sqlLocks(sqliteDatabase(file), { ...options, closeDatabase: true }),
    async openOverWire() {
      const database = sqliteDatabase(file);
      const { claims, wire } = breakable(sqlClaims(database));
      return { store: pollingStore({ ...claims, close: () => database.close() }), wire };
    },
    erase: (name) => eraseRow(admin, name),
    async close() {
      await admin.close();
      await remove();
    },
  };
}

/** Locks in a new database of the server. */
export async function sqlServerUnderTest(server: SqlServer): Promise<StoreUnderTest> {
  const { url, options, open, drop } = await temporaryDatabase(server);
  const admin = open();
  await migrate(admin);
  const proxies: TcpProxy[] = [];
  return {
    name: server.name,
    url,
    open: (more) => sqlLocks(open(), { ...more, closeDatabase: true }),
    async openOverWire() {
      const answer = url.startsWith("postgres:") ? postgresAnswer : mysqlAnswer;
      const proxy = await TcpProxy.toStore(options.port, answer);
      proxies.push(proxy);
      const database = open({ port: proxy.port });
      // Connects first, so that a lost answer is not that of a handshake.
      await database.read(sql`SELECT 1`);
      return { store: sqlLocks(database, { closeDatabase: true }), wire: proxy };
    },
    erase: (name) => eraseRow(admin, name),
    async close() {
      for (const proxy of proxies) await proxy.close();
      await admin.close();
      await drop();
    },
  };
}

async function eraseRow(database: Database, name: string): Promise<void> {
  await database.batch([sql`DELETE FROM lockstep_lock WHERE name = ${name}`]);
}

/** Returns a path for a database file, in a new folder. */
export async function temporaryFile() {
  const folder = await temporaryFolder("test");
  return { file: join(folder.path, "test.db"), remove: folder.remove };
}

/** Creates an empty database on a server. */
export async function temporaryDatabase(server: SqlServer) {
  const { protocol, hostname, port, username } = new URL(server.url);
  const database = `test_${randomBytes(6).toString("hex")}`;
  const options = { host: hostname, port: Number(port), user: username, database };
  const isPostgres = protocol === "postgres:";
  const admin = await connectTo(server.url);
  await admin.query(`CREATE DATABASE ${database}`);
  return {
    url: `${protocol}//${username}@${hostname}:${port}/${database}`,
    options,
    /** Opens another client, by default with the options of the temporary database. */
    open: (more: Partial<MysqlOptions & PostgresOptions> = {}): Database =>
      (isPostgres ? postgresDatabase : mysqlDatabase)({ ...options, ...more }),
    async drop() {
      // PostgreSQL refuses to drop a database with connections, and those of a killed process may still end.
      await admin.query(`DROP DATABASE ${database}${isPostgres ? " WITH (FORCE)" : ""}`);
      await admin.end();
    },
  };
}

interface Connection {
  query(text: string): Promise<unknown>;
  end(): Promise<void>;
}

/** Connects to a MySQL, MariaDB or PostgreSQL server without Lockstep. */
export async function connectTo(url: string): Promise<Connection> {
  if (!url.startsWith("postgres:")) return mysql.createConnection(url);
  const client = new pg.Client(url);
  await client.connect();
  return client;
}

/** Locks in etcd over one of the transports. */
export async function etcdUnderTest(
  { name, endpoints }: EtcdServer,
  transport: TransportName = "grpc",
): Promise<StoreUnderTest> {
  const prefix = `test-${randomBytes(6).toString("hex")}/`;
  const openIt = await openerOf(transport);
  const scheme = transport === "gateway" ? "etcd+http" : "etcd";
  const admin = openIt({ endpoints });
  const proxies: TcpProxy[] = [];
  return {
    name,
    url: `${scheme}://${endpoints.join(",")}/${prefix.slice(0, -1)}`,
    open: (more) => etcdLocks(openIt({ endpoints }), { ...more, prefix, closeEtcd: true }),
    openWithElections: () => etcdStore(openIt({ endpoints }), { prefix }),
    async openOverWire() {
      const [endpoint = ""] = endpoints;
      const port = Number(endpoint.split(":")[1]);
      const answer = transport.startsWith("gateway") ? httpAnswer : grpcAnswer;
      const proxy = await TcpProxy.toStore(port, answer);
      proxies.push(proxy);
      const etcd = openIt({ endpoints: [`127.0.0.1:${proxy.port}`] });
      // Connects first, so that a lost answer is not that of a handshake.
      await etcd.range(get("warm up"));
      return { store: etcdLocks(etcd, { prefix, closeEtcd: true }), wire: proxy };
    },
    async erase(lockName) {
      const queue = { prefix: queueOf(prefix, lockName) };
      const { kvs } = await admin.range(get(queue, { by: "create", limit: 1 }));
      for (const { key } of kvs) await admin.txn({ when: [], do: [remove(key)] });
    },
    async close() {
      for (const proxy of proxies) await proxy.close();
      await admin.txn({ when: [], do: [remove({ prefix })] });
      await admin.close();
    },
  };
}

/** Locks in the shared Redis server, under a unique prefix. */
/** Locks in Redis over HTTP. */
export async function redisRestUnderTest(): Promise<StoreUnderTest> {
  const prefix = anyPrefix();
  const admin = openLocal();
  const rest = await RestProxy.to(redisServer("redis").ports[0] ?? 0);
  const { token } = rest;
  const proxies: TcpProxy[] = [];
  const openAt = (port: number, options?: StoreOptions) => {
    const redis = redisRestClient({ url: `http://127.0.0.1:${port}`, token });
    return redisLocks(redis, { ...options, prefix, closeRedis: true });
  };
  return {
    name: "redis over HTTP",
    url: `redis+http://:${token}@127.0.0.1:${rest.port}?prefix=${prefix}`,
    open: (options) => openAt(rest.port, options),
    async openOverWire() {
      const proxy = await TcpProxy.toStore(rest.port, httpAnswer);
      proxies.push(proxy);
      return { store: openAt(proxy.port), wire: proxy };
    },
    async erase(name) {
      await admin.call(["DEL", keyOf(prefix, "lock", name)]);
    },
    async close() {
      for (const proxy of proxies) await proxy.close();
      await rest[Symbol.asyncDispose]();
      await admin.close();
    },
  };
}

export async function redisUnderTest(): Promise<StoreUnderTest> {
  const prefix = anyPrefix();
  const admin = openLocal();
  const [port = 0] = redisServer("redis").ports;
  const proxies: TcpProxy[] = [];
  return {
    name: "redis",
    url: `redis://127.0.0.1:${port}?prefix=${prefix}`,
    open: (options) => redisLocks(openLocal(), { ...options, prefix, closeRedis: true }),
    async openOverWire() {
      const proxy = await TcpProxy.toStore(port, redisAnswer);
      proxies.push(proxy);
      const redis = openLocal({ port: proxy.port });
      // Connects first, so that a lost answer is not that of a handshake.
      await redis.call(["PING"]);
      return { store: redisLocks(redis, { prefix, closeRedis: true }), wire: proxy };
    },
    async erase(name) {
      await admin.call(["DEL", keyOf(prefix, "lock", name)]);
    },
    async close() {
      for (const proxy of proxies) await proxy.close();
      await admin.close();
    },
  };
}

/** Locks on independent Redis servers: by default on the five shared ones. */
export async function redlockUnderTest(
  ports: readonly number[] = redisServer("redlock").ports,
): Promise<StoreUnderTest> {
  const prefix = anyPrefix();
  const admins = ports.map((port) => openLocal({ port }));
  const proxies: TcpProxy[] = [];
  const openOn = (on: readonly number[], options?: StoreOptions) => {
    const masters = on.map((port) => openLocal({ port }));
    return redlockLocks(masters, { ...options, prefix, closeMasters: true });
  };
  return {
    name: "redlock",
    url: `redlock://${ports.map((port) => `127.0.0.1:${port}`).join(",")}?prefix=${prefix}`,
    open: (options) => openOn(ports, options),
    async openOverWire() {
      const wires = await Promise.all(ports.map((port) => TcpProxy.toStore(port, redisAnswer)));
      proxies.push(...wires);
      const store = openOn(wires.map(({ port }) => port));
      // Connects first, so that a lost answer is not that of a handshake.
      await store.inspect("warm up");
      await until(() => wires.every(({ connections }) => connections > 0));
      const each = (act: (wire: TcpProxy) => void) => () => wires.forEach(act);
      const wire: Wire = {
        cut: each((one) => one.cut()),
        mend: each((one) => one.mend()),
        blackhole: each((one) => one.blackhole()),
        delayNextRequest: each((one) => one.delayNextRequest()),
        deliver: () => wires.map((one) => one.deliver()).includes(true),
        loseNextAnswer: each((one) => one.loseNextAnswer()),
        failNextAnswer: each((one) => one.failNextAnswer()),
      };
      return { store, wire };
    },
    async erase(name) {
      const key = keyOf(prefix, "lock", name);
      await Promise.allSettled(admins.map((admin) => admin.call(["DEL", key])));
    },
    async close() {
      await Promise.all([...proxies, ...admins].map((each) => each.close()));
    },
  };
}

export async function zookeeperUnderTest({
  name,
  servers,
}: ZooKeeperServer): Promise<StoreUnderTest> {
  const root = `/test-${randomBytes(6).toString("hex")}`;
  const client = zookeeperClient({ servers });
  const admin = await client.openSession(60_000);
  const proxies: TcpProxy[] = [];
  const open = (at: readonly string[], more?: StoreOptions) =>
    zookeeperLocks(zookeeperClient({ servers: at }), { ...more, root, closeZooKeeper: true });
  return {
    name,
    url: `zookeeper://${servers.join(",")}${root}`,
    open: (more) => open(servers, more),
    openWithElections: () => openZooKeeper({ servers }, { root }),
    async openOverWire() {
      const [server = ""] = servers;
      const proxy = await TcpProxy.toStore(Number(server.split(":")[1]), zookeeperAnswer);
      proxies.push(proxy);
      return { store: open([`127.0.0.1:${proxy.port}`]), wire: proxy };
    },
    async erase(lockName) {
      const queue = zookeeperQueueOf(root, lockName);
      const [, children = []] = await Promise.all([admin.sync(), admin.children(queue)]);
      const [first] = sortedBySequence(children);
      if (first) await admin.remove(`${queue}/${first}`);
    },
    async close() {
      for (const proxy of proxies) await proxy.close();
      await client.close();
    },
  };
}

/** Locks in a new table. */
export async function dynamodbUnderTest(): Promise<StoreUnderTest> {
  const { url, open } = await anyTable();
  const admin = open();
  const proxies: TcpProxy[] = [];
  const locksOf = (dynamodb: Dynamodb, options?: Parameters<typeof dynamodbLocks>[1]) =>
    dynamodbLocks(dynamodb, { ...options, closeDynamodb: true });
  return {
    name: "dynamodb",
    url,
    open: (options) => locksOf(open(), { ...options, generationLife: 1_000 }),
    async openOverWire() {
      const proxy = await TcpProxy.toStore(dynamodbPort(), httpAnswer);
      proxies.push(proxy);
      const store = locksOf(open({ port: proxy.port }));
      // Reads the generation first, so that a lost answer is not that of this read.
      await (await store.lock("warm up", { ttl: 20_000, wait: 20_000 })).unlock();
      return { store, wire: proxy };
    },
    async erase(name) {
      const key = { pk: `lock/${name}`, sk: "lock" };
      await admin.write([{ key, update: "REMOVE #owner", when: "attribute_exists(#pk)" }]);
    },
    async close() {
      for (const proxy of proxies) await proxy.close();
      await admin.close();
    },
  };
}
