import { hostname } from "node:os";
import type { Database } from "../core/database/sql.ts";
import type { Etcd } from "../core/etcd/etcd.ts";
import type { Inventory } from "../core/inventory/inventory.ts";
import type { Journal } from "../core/journal/journal.ts";
import type { LockStore } from "../core/lock/lock.ts";
import type { StoreOptions } from "../core/lock/store.ts";
import { PREFIX } from "../core/redis/names.ts";
import type { Redis } from "../core/redis/redis.ts";
import { publish } from "./diagnostics.ts";
import { load } from "./load.ts";
import {
  checkOptions,
  type Host,
  type NetworkUrl,
  parseStoreUrl,
  readTls,
  type StoreUrl,
} from "./store-url.ts";

/** What stands behind a store's URL. Closing it closes everything. */
export interface Opened extends AsyncDisposable {
  readonly locks: LockStore;

  /** Where the store keeps stock. */
  readonly inventory: Inventory | undefined;

  /** Where the store keeps runs of workflows. */
  readonly journal?: Journal;

  /** Where the store is a database. */
  readonly database?: Database;

  /** Where the store is an etcd: its client, and what stands before all keys. */
  readonly etcd?: { readonly client: Etcd; readonly prefix: string };

  /** Where the store is a Redis: its client, and what stands before all keys. */
  readonly redis?: { readonly client: Redis; readonly prefix: string };

  close(): Promise<void>;
}

type Open = (
  url: StoreUrl,
  options: StoreOptions,
) => Promise<Omit<Opened, keyof AsyncDisposable | "close">>;

/** Every store, by the scheme of its URL. A store's client is loaded only when it is used. */
const STORES: Readonly<Record<string, Open>> = {
  memory: openMemory,
  sqlite: openSqlite,
  mysql: openMysql,
  mysqls: openMysql,
  etcd: openEtcd,
  etcds: openEtcd,
  "etcd+http": openEtcdGateway,
  "etcd+https": openEtcdGateway,
  redis: openRedis,
  rediss: openRedis,
  redlock: openRedlock,
  redlocks: openRedlock,
  zookeeper: openZooKeeper,
};

/** The stores' URLs, for messages. */
const STORE_URLS = [
  "memory:",
  "sqlite:PATH",
  "mysql://USER:PASSWORD@HOST:PORT/DATABASE",
  "etcd://HOST:PORT,HOST:PORT/PREFIX",
  "etcd+http://… (etcd's JSON gateway)",
  "redis://USER:PASSWORD@HOST:PORT/DATABASE?prefix=…&replicas=…",
  "redlock://USER:PASSWORD@HOST:PORT,HOST:PORT,HOST:PORT?prefix=…",
  "zookeeper://HOST:PORT,HOST:PORT/ROOT",
  "mysqls://…, etcds://…, etcd+https://…, rediss://… and redlocks://… (TLS; options ca, cert, key name PEM files)",
];

/**
 * Opens the store that a URL names: "sqlite:shop.db", "mysql://user:password@host/shop", …
 *
 * Rejects with a TypeError for a URL that is none. It connects on first use, except that SQLite's tables
 * are made here; those of a server are made by `lockstep migrate`.
 */
export async function open(url: string, options: StoreOptions = {}): Promise<Opened> {
  const parsed = parseStoreUrl(url);
  const openIt = Object.hasOwn(STORES, parsed.scheme) ? STORES[parsed.scheme] : undefined;
  if (openIt === undefined) {
    throw new TypeError(
      `there is no store "${parsed.scheme}:"; there are ${STORE_URLS.join(", ")}`,
    );
  }
  const label = `${hostname().slice(0, 100)}:${process.pid}`;
  const opened = await openIt(parsed, { label, onEvent: publish, ...options });
  const close = () => opened.locks.close();
  return { ...opened, close, [Symbol.asyncDispose]: close };
}

/** The locks of the store that a URL names; closing them closes the store. */
export async function openStore(url: string, options?: StoreOptions): Promise<LockStore> {
  return (await open(url, options)).locks;
}

async function openMemory(_: StoreUrl, options: StoreOptions) {
  const { memoryStore } = await import("../core/stores/memory/index.ts");
  const { memoryJournal } = await import("../core/journal/memory.ts");
  return { locks: memoryStore(options), inventory: undefined, journal: memoryJournal() };
}

async function openSqlite({ path }: StoreUrl, options: StoreOptions) {
  const { openSqlite, sqliteStore } = await import("../core/stores/sqlite/index.ts");
  const { migrate } = await import("./migrate.ts");
  const database = openSqlite(toFile(path));
  await migrate(database);
  const locks = sqliteStore(database, { ...options, closeDatabase: true });
  return { locks, database, ...(await keptIn(database)) };
}

function toFile(path: string): string {
  // sqlite:///var/lib/shop.db has an empty host, as file: URLs do.
  const file = path.replace(/^\/{3,}/, "/");
  if (file === "" || file.startsWith("//")) {
    throw new TypeError(
      'the store "sqlite:" needs a path, such as "sqlite:shop.db" or "sqlite:/var/lib/shop.db"',
    );
  }
  return file;
}

async function openMysql({ scheme, network }: StoreUrl, options: StoreOptions) {
  const { mysqlStore, openMysql } = await load(
    "mysql2",
    () => import("../core/stores/mysql/index.ts"),
  );
  const database = openMysql(toMysqlOptions(scheme, network));
  const locks = mysqlStore(database, { ...options, closeDatabase: true });
  return { locks, database, ...(await keptIn(database)) };
}

/** What a database keeps besides locks. */
async function keptIn(database: Database) {
  const { sqlInventory } = await import("../core/inventory/sql.ts");
  const { sqlJournal } = await import("../core/journal/sql.ts");
  return { inventory: sqlInventory(database), journal: sqlJournal(database) };
}

function toMysqlOptions(scheme: string, url: NetworkUrl | undefined) {
  if (!url?.name)
    throw new TypeError(`the store "${scheme}:" needs ${scheme}://HOST:PORT/DATABASE`);
  const tls = scheme === "mysqls";
  checkOptions(url, tls ? ["ca", "cert", "key", "connections"] : ["connections"]);
  const { host, port, user, password, name, options } = url;
  return {
    host,
    ...(port !== undefined && { port }),
    user: user || "root",
    password,
    database: name,
    connections: Number(options.get("connections") ?? 10),
    ...(tls && { tls: readTls(url) }),
  };
}

async function openEtcd({ scheme, network }: StoreUrl, options: StoreOptions) {
  const { openEtcd } = await load("etcd3", () => import("../core/etcd/grpc.ts"));
  const { etcdOptions, prefix } = toEtcdOptions(scheme, network);
  return withEtcd(openEtcd(etcdOptions), prefix, options);
}

async function openEtcdGateway({ scheme, network }: StoreUrl, options: StoreOptions) {
  const { openEtcdGateway } = await import("../core/etcd/gateway.ts");
  const { nodeFetch } = await import("../core/etcd/node-fetch.ts");
  const { etcdOptions, prefix } = toEtcdOptions(scheme, network);
  const { tls, ...rest } = etcdOptions;
  const client = openEtcdGateway({ ...rest, ...(tls && { tls: {} }), fetch: nodeFetch(tls) });
  return withEtcd(client, prefix, options);
}

async function withEtcd(etcd: Etcd, prefix: string, options: StoreOptions) {
  const { etcdStore } = await import("../core/stores/etcd/index.ts");
  const { etcdInventory } = await import("../core/inventory/etcd.ts");
  const locks = etcdStore(etcd, { ...options, prefix, closeEtcd: true });
  return { locks, inventory: etcdInventory(etcd, { prefix }), etcd: { client: etcd, prefix } };
}

function toEtcdOptions(scheme: string, url: NetworkUrl | undefined) {
  if (!url) throw new TypeError(`the store "${scheme}:" needs ${scheme}://HOST:PORT`);
  const tls = ["etcds", "etcd+https"].includes(scheme);
  checkOptions(url, tls ? ["ca", "cert", "key"] : []);
  const { hosts, user, password, name } = url;
  return {
    prefix: name.replace(/\/*$/, "/").replace(/^\/$/, ""),
    etcdOptions: {
      endpoints: hosts.map((host) => toEndpoint(host, 2_379)),
      ...(user !== "" && { user, password }),
      ...(tls && { tls: readTls(url) }),
    },
  };
}

function toEndpoint({ host, port }: Host, standard: number): string {
  return `${host.includes(":") ? `[${host}]` : host}:${port ?? standard}`;
}

async function openZooKeeper({ scheme, network }: StoreUrl, options: StoreOptions) {
  if (!network) throw new TypeError(`the store "${scheme}:" needs ${scheme}://HOST:PORT`);
  checkOptions(network, []);
  const { zookeeperStore, openZooKeeper } = await import("../core/stores/zookeeper/index.ts");
  const { hosts, user, password, name } = network;
  const zookeeper = openZooKeeper({
    servers: hosts.map((host) => toEndpoint(host, 2_181)),
    ...(user !== "" && { user, password }),
  });
  const root = name.replace(/\/+$/, "");
  const locks = zookeeperStore(zookeeper, {
    ...options,
    root: root && `/${root}`,
    closeZooKeeper: true,
  });
  return { locks, inventory: undefined };
}

async function openRedis({ scheme, network }: StoreUrl, options: StoreOptions) {
  const { openRedis, redisStore } = await load(
    "ioredis",
    () => import("../core/stores/redis/index.ts"),
  );
  const { redisInventory } = await import("../core/inventory/redis.ts");
  const { redisOptions, prefix, replicas } = toRedisOptions(scheme, network);
  const client = openRedis(redisOptions);
  const locks = redisStore(client, { ...options, prefix, replicas, closeRedis: true });
  const inventory = redisInventory(client, { prefix, replicas });
  return { locks, inventory, redis: { client, prefix } };
}

function toRedisOptions(scheme: string, url: NetworkUrl | undefined) {
  if (!url || url.hosts.length > 1 || !/^\d*$/.test(url.name)) {
    throw new TypeError(`the store "${scheme}:" needs ${scheme}://HOST:PORT/DATABASE-NUMBER`);
  }
  const tls = scheme === "rediss";
  checkOptions(url, [...(tls ? ["ca", "cert", "key"] : []), "prefix", "replicas"]);
  const { host, port, options } = url;
  return {
    prefix: options.get("prefix") ?? PREFIX,
    replicas: Number(options.get("replicas") ?? 0),
    redisOptions: { ...toServer({ host, port }), ...toLogin(url, tls) },
  };
}

async function openRedlock({ scheme, network: url }: StoreUrl, options: StoreOptions) {
  const { openRedis, redlockStore } = await load(
    "ioredis",
    () => import("../core/stores/redlock/index.ts"),
  );
  if (!url || !/^\d*$/.test(url.name)) {
    throw new TypeError(`the store "${scheme}:" needs ${scheme}://HOST:PORT,HOST:PORT,HOST:PORT`);
  }
  const tls = scheme === "redlocks";
  checkOptions(url, [...(tls ? ["ca", "cert", "key"] : []), "prefix"]);
  const login = toLogin(url, tls);
  const masters = url.hosts.map((host) => openRedis({ ...toServer(host), ...login }));
  const prefix = url.options.get("prefix") ?? PREFIX;
  const locks = redlockStore(masters, { ...options, prefix, closeMasters: true });
  return { locks, inventory: undefined };
}

function toServer({ host, port }: Host) {
  return { host, ...(port !== undefined && { port }) };
}

function toLogin(url: NetworkUrl, tls: boolean) {
  const { user, password, name } = url;
  return {
    ...(user !== "" && { user }),
    ...(password !== "" && { password }),
    database: Number(name),
    ...(tls && { tls: readTls(url) }),
  };
}
