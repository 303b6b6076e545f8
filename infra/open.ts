/** Opens any store by its URL. */

import { channel } from "node:diagnostics_channel";
import { hostname } from "node:os";
import { resolve } from "node:path";
import type { Database } from "../core/database/sql.ts";
import type { StockEventOptions, StockListener } from "../core/inventory/events.ts";
import type { Inventory } from "../core/inventory/inventory.ts";
import type { Journal } from "../core/journal/journal.ts";
import { quote } from "../core/lock/errors.ts";
import type { LockEvent } from "../core/lock/events.ts";
import type { OpenStore } from "../core/lock/open-store.ts";
import { checkOptionNames, type OptionNames } from "../core/lock/options.ts";
import type { StoreOptions } from "../core/lock/store.ts";
import type { Dynamodb } from "../core/stores/dynamodb/client/dynamodb.ts";
import type { DynamodbTable } from "../core/stores/dynamodb/client/table.ts";
import type { Etcd } from "../core/stores/etcd/client/etcd.ts";
import { hostLiteral } from "../core/stores/host-literal.ts";
import { STORE_OPTIONS } from "../core/stores/options.ts";
import type { Redis } from "../core/stores/redis/client/redis.ts";
import type { ZooKeeper } from "../core/stores/zookeeper/client/zookeeper.ts";
import { shownCommand } from "./command-line.ts";
import { makeDefaultFolder } from "./state-folder.ts";
import {
  checkOptions,
  type Host,
  type NetworkUrl,
  numberOption,
  parseStoreUrl,
  readTls,
  type StoreUrl,
} from "./store-url.ts";

/** The part of a store that only some stores have. */
type StorePart = Exclude<keyof AnyStore, keyof UrlStore>;

/** The members of every store that was opened by its URL. */
interface UrlStore extends OpenStore {
  /** The store's URL as it may be shown: without user, password and the options that do not choose the store. */
  readonly url: string;

  /** Whether the store has a part. To read a part that it does not have throws a TypeError. */
  has(part: StorePart): boolean;
}

/** A store whose scheme is not known when the program is compiled: every part is there, or throws when it is read. */
export interface AnyStore extends UrlStore {
  readonly inventory: Inventory;
  readonly journal: Journal;
  readonly database: Database;
  readonly etcd: Etcd;
  /** @internal */
  readonly redis: Redis;
  readonly zookeeper: ZooKeeper;
  /** @internal */
  readonly dynamodb: Dynamodb;
  readonly table: DynamodbTable;

  /** Stands before all keys of an etcd or a Redis. */
  readonly prefix: string;
}

interface OpenOptions extends StoreOptions, StockEventOptions {
  /** Whether a SQLite file that is missing, or has no tables of Lockstep, gets them. Default true. If false, such a store is empty. */
  readonly create?: boolean;

  /**
   * Whether a SQLite file with older tables gets the present ones. Default true.
   *
   * @internal
   */
  readonly migrates?: boolean;

  /** Receives the result or the error of every change of stock. */
  readonly onStockEvent?: StockListener;
}

const OPEN_OPTIONS = {
  ...STORE_OPTIONS,
  create: true,
  migrates: false,
} satisfies OptionNames<OpenOptions>;

interface StoreKind {
  /** The schemes of the store's URLs: one without and one with TLS, or all of them without. */
  readonly schemes: readonly string[];

  /** The URL, for messages. */
  readonly url: string;

  readonly parts: readonly StorePart[];

  /** Loads the store's code and client, and opens the store. */
  readonly open: (url: StoreUrl, options: OpenOptions) => Promise<OpenStore>;
}

const SQL_PARTS = ["inventory", "journal", "database"] as const;

/** The table of stores, from which types and messages follow. */
const STORES = [
  { schemes: ["memory"], url: "memory:", parts: ["journal"], open: openMemory },
  { schemes: ["sqlite"], url: "sqlite:PATH", parts: SQL_PARTS, open: openSqlite },
  {
    schemes: ["mysql", "mysqls"],
    url: "mysql://HOST:PORT/DATABASE",
    parts: SQL_PARTS,
    open: openMysql,
  },
  {
    schemes: ["postgres", "postgresql"],
    url: "postgres://HOST:PORT/DATABASE?sslmode=…",
    parts: SQL_PARTS,
    open: openPostgres,
  },
  {
    schemes: ["etcd", "etcds"],
    url: "etcd://HOST:PORT,HOST:PORT/PREFIX",
    parts: ["inventory", "etcd", "prefix"],
    open: openEtcd,
  },
  {
    schemes: ["etcd+http", "etcd+https"],
    url: "etcd+http://… (etcd's JSON gateway)",
    parts: ["inventory", "etcd", "prefix"],
    open: openEtcdGateway,
  },
  {
    schemes: ["redis", "rediss"],
    url: "redis://HOST:PORT/DATABASE?prefix=…&replicas=…",
    parts: ["inventory", "redis", "prefix"],
    open: openRedis,
  },
  {
    schemes: ["redis+cluster", "rediss+cluster"],
    url: "redis+cluster://HOST:PORT,HOST:PORT?prefix=…&replicas=…&partitions=…",
    parts: ["inventory", "redis", "prefix"],
    open: openRedisCluster,
  },
  {
    schemes: ["redis+sentinel", "rediss+sentinel"],
    url: "redis+sentinel://SENTINEL:PORT,SENTINEL:PORT/MASTER/DATABASE?prefix=…&replicas=…",
    parts: ["inventory", "redis", "prefix"],
    open: openRedisSentinel,
  },
  {
    schemes: ["redis+http", "redis+https"],
    url: "redis+http://… (Upstash's REST API)",
    parts: ["inventory", "redis", "prefix"],
    open: openRedisRest,
  },
  {
    schemes: ["redlock", "redlocks"],
    url: "redlock://HOST:PORT,HOST:PORT,HOST:PORT?prefix=…",
    parts: [],
    open: openRedlock,
  },
  {
    schemes: ["zookeeper", "zookeepers"],
    url: "zookeeper://HOST:PORT,HOST:PORT/ROOT",
    parts: ["zookeeper"],
    open: openZooKeeper,
  },
  {
    schemes: ["dynamodb"],
    url: "dynamodb://REGION/TABLE?endpoint=…",
    parts: ["inventory", "journal", "dynamodb", "table"],
    open: openDynamodb,
  },
] as const satisfies readonly StoreKind[];

type KnownStore = (typeof STORES)[number];
type Scheme = KnownStore["schemes"][number];

/** The type of a store by a scheme of its URL. */
type StoreOf<S extends Scheme, K = KnownStore> = K extends KnownStore
  ? S extends K["schemes"][number]
    ? Awaited<ReturnType<K["open"]>>
    : never
  : never;

/** The type of the store behind a URL: by the scheme of a literal, and AnyStore for any other text. */
type StoreAt<Url extends string> = Url extends `${infer S extends Scheme}:${string}`
  ? StoreOf<S> & UrlStore
  : AnyStore;

/**
 * Opens the store that a URL names: "sqlite:shop.db", "mysql://user:password@host/shop", …
 *
 *     await using shop = await open("sqlite:shop.db"); // its type says that it has an inventory
 *     await using store = await open(process.env.STORE ?? "memory:"); // store.inventory may throw
 *
 * Connects on first use, except that SQLite's tables are made here; those of a server are made by
 * `lockstep migrate`. Rejects with a TypeError for a text that is no store's URL.
 */
export async function open<const Url extends string>(
  url: Url,
  options: OpenOptions = {},
): Promise<StoreAt<Url>> {
  checkOptionNames("open", options, OPEN_OPTIONS);
  const parsed = parseStoreUrl(url);
  const label = processLabel();
  const command = shownCommand(process.argv);
  const { open } = kindOf(parsed.scheme);
  // Those of a file mean nothing to other stores.
  const { create: _create, migrates: _migrates, ...common } = options;
  const given = parsed.scheme === "sqlite" ? options : common;
  const store = await open(parsed, { label, command, onEvent: publish, ...given });
  const has = (part: StorePart) => Object.hasOwn(store, part);
  return withMissingParts(parsed.scheme, { ...store, url: toShow(parsed), has }) as StoreAt<Url>;
}

/** Returns what names this process to humans. */
export function processLabel(): string {
  return `${hostname().slice(0, 64)}:${process.pid}`;
}

const locks = channel("lockstep:lock");

/** Publishes lock events on the diagnostics channel "lockstep:lock". */
function publish(event: LockEvent): void {
  if (locks.hasSubscribers) locks.publish(event);
}

const KINDS: readonly StoreKind[] = STORES;

function kindOf(scheme: string): StoreKind {
  const kind = KINDS.find(({ schemes }) => schemes.includes(scheme));
  if (kind) return kind;
  const urls = KINDS.map(({ url }) => url).join(", ");
  const withTls = KINDS.flatMap(({ schemes }) =>
    schemes.filter((each) => schemes.some((plain) => each === toTls(plain))),
  ).map((each) => `${each}://…`);
  const tls = `${withTls.join(", ")} (TLS; options ca, cert, key name PEM files)`;
  throw new TypeError(`there is no store "${scheme}:"; the stores are ${urls}, ${tls}`);
}

function toTls(scheme: string): string {
  return scheme.replace(/(\+cluster|\+sentinel)?$/, "s$1");
}

/** Adds a getter for each part that the store does not have. Copies of the store leave these getters out. */
function withMissingParts(scheme: string, store: UrlStore): UrlStore {
  const missing = new Set(KINDS.flatMap(({ parts }) => parts)).difference(
    new Set(kindOf(scheme).parts),
  );
  for (const part of missing) {
    const get = () => {
      const others = KINDS.filter(({ parts }) => parts.includes(part));
      const named = others.map(({ schemes: [first] }) => `${first}:`).join(", ");
      throw new TypeError(`the store ${scheme}: has no ${part}; stores that have one: ${named}`);
    };
    Object.defineProperty(store, part, { get });
  }
  return store;
}

function toShow(parsed: StoreUrl): string {
  const { scheme, path } = parsed;
  // A file after an empty host looks like the URL of a network, and is none.
  if (scheme === "sqlite") return `sqlite:${resolve(toFile(path))}`;
  const { network } = parsed;
  if (!network) return `${scheme}:`;
  const { hosts, name, options } = network;
  const servers = hosts.map(({ host, port }) => {
    const literal = hostLiteral(host);
    return port === undefined ? literal : `${literal}:${port}`;
  });
  const choosing = ["prefix", "endpoint", "partitions"].flatMap((option) => {
    const value = options.get(option);
    return value ? [`${option}=${value}`] : [];
  });
  return `${scheme}://${servers}${name && `/${name}`}${choosing.length > 0 ? `?${choosing.join("&")}` : ""}`;
}

async function openMemory(_: StoreUrl, options: OpenOptions) {
  const { openMemory } = await import("../core/stores/memory/index.ts");
  return openMemory(options);
}

async function openSqlite({ path }: StoreUrl, options: OpenOptions) {
  const { openSqlite } = await import("../core/stores/sqlite/index.ts");
  const file = toFile(path);
  if (options.create !== false) makeDefaultFolder(file);
  return openSqlite(file, options);
}

function toFile(path: string): string {
  // sqlite:///var/lib/shop.db has an empty host, as file: URLs do.
  const file = path.replace(/^\/{3,}/, "/");
  if (file === "" || file.startsWith("//")) {
    throw new TypeError(
      'the store "sqlite:" needs a path, such as "sqlite:shop.db" or "sqlite:/var/lib/shop.db"',
    );
  }
  if (file.includes("?")) {
    throw new TypeError(
      `the store "sqlite:" takes no options, and a path without "?": ${quote(`sqlite:${file}`)}`,
    );
  }
  return file;
}

async function openMysql({ scheme, network }: StoreUrl, options: OpenOptions) {
  const { openMysql } = await import("../core/stores/mysql/index.ts");
  return openMysql(toMysqlOptions(scheme, network), options);
}

function toMysqlOptions(scheme: string, url: NetworkUrl | undefined) {
  if (!url?.name || url.hosts.length > 1)
    throw new TypeError(`the store "${scheme}:" needs ${scheme}://HOST:PORT/DATABASE`);
  const tls = scheme === "mysqls";
  checkOptions(url, tls ? ["ca", "cert", "key", "connections"] : ["connections"]);
  const { host, port, user, password, name } = url;
  return {
    host,
    ...(port !== undefined && { port }),
    user: user || "root",
    password,
    database: name,
    connections: numberOption(url, "connections", 10),
    ...(tls && { tls: readTls(url) }),
  };
}

async function openPostgres({ scheme, network }: StoreUrl, options: OpenOptions) {
  const { openPostgres } = await import("../core/stores/postgres/index.ts");
  return openPostgres(toPostgresOptions(scheme, network), options);
}

/** The modes in which the certificate and the host are checked here. libpq's other modes would accept any server. */
const TLS_MODES = ["require", "verify-ca", "verify-full"];

function toPostgresOptions(scheme: string, url: NetworkUrl | undefined) {
  if (!url?.name || url.hosts.length > 1)
    throw new TypeError(`the store "${scheme}:" needs ${scheme}://HOST:PORT/DATABASE`);
  const { host, port, user, password, name, options } = url;
  const mode = options.get("sslmode") ?? "disable";
  const tls = TLS_MODES.includes(mode);
  if (!tls && mode !== "disable") {
    throw new TypeError(
      `sslmode is disable, or one of ${TLS_MODES.join(", ")}: all of these check the host`,
    );
  }
  if (options.has("channel_binding")) {
    throw new TypeError(
      "leave out the option channel_binding: with sslmode, the certificate and its host are always checked",
    );
  }
  const files = { ca: "sslrootcert", cert: "sslcert", key: "sslkey" };
  checkOptions(url, ["sslmode", ...(tls ? Object.values(files) : []), "connections"]);
  return {
    host,
    ...(port !== undefined && { port }),
    user: user || "postgres",
    ...(password !== "" && { password }),
    database: name,
    connections: numberOption(url, "connections", 10),
    ...(tls && { tls: readTls(url, files) }),
  };
}

async function openEtcd({ scheme, network }: StoreUrl, options: OpenOptions) {
  const { openEtcd } = await import("../core/stores/etcd/index.ts");
  const { connection, prefix } = toEtcdOptions(scheme, network);
  return openEtcd(connection, { ...options, prefix });
}

async function openEtcdGateway({ scheme, network }: StoreUrl, options: OpenOptions) {
  const { openEtcdGateway } = await import("../core/stores/etcd/node-gateway.ts");
  const { connection, prefix } = toEtcdOptions(scheme, network);
  return openEtcdGateway(connection, { ...options, prefix });
}

function toEtcdOptions(scheme: string, url: NetworkUrl | undefined) {
  if (!url) throw new TypeError(`the store "${scheme}:" needs ${scheme}://HOST:PORT`);
  const tls = ["etcds", "etcd+https"].includes(scheme);
  checkOptions(url, tls ? ["ca", "cert", "key"] : []);
  const { hosts, user, password, name } = url;
  const connection = {
    endpoints: hosts.map((host) => toEndpoint(host, 2_379)),
    ...(user !== "" && { user, password }),
    ...(tls && { tls: readTls(url) }),
  };
  return { connection, prefix: name.replace(/\/*$/, "/").replace(/^\/$/, "") };
}

function toEndpoint({ host, port }: Host, standard: number): string {
  return `${hostLiteral(host)}:${port ?? standard}`;
}

async function openZooKeeper({ scheme, network }: StoreUrl, options: OpenOptions) {
  if (!network) throw new TypeError(`the store "${scheme}:" needs ${scheme}://HOST:PORT`);
  const tls = scheme === "zookeepers";
  checkOptions(network, tls ? ["ca", "cert", "key"] : []);
  const { openZooKeeper } = await import("../core/stores/zookeeper/index.ts");
  const { hosts, user, password, name } = network;
  const root = name.replace(/\/+$/, "");
  const connection = {
    servers: hosts.map((host) => toEndpoint(host, tls ? 2_281 : 2_181)),
    ...(user + password !== "" && { user, password }),
    ...(tls && { tls: readTls(network) }),
  };
  return openZooKeeper(connection, { ...options, root: root && `/${root}` });
}

async function openRedis({ scheme, network }: StoreUrl, options: OpenOptions) {
  if (!network || network.hosts.length > 1 || !/^\d*$/.test(network.name)) {
    throw new TypeError(`the store "${scheme}:" needs ${scheme}://HOST:PORT/DATABASE-NUMBER`);
  }
  const { login, store } = readRedisUrl(scheme, network);
  const { openRedis } = await import("../core/stores/redis/index.ts");
  const database = Number(network.name);
  return openRedis({ ...toServer(network), ...login, database }, { ...options, ...store });
}

async function openRedisCluster({ scheme, network }: StoreUrl, options: OpenOptions) {
  if (network?.name !== "") {
    throw new TypeError(`the store "${scheme}:" needs ${scheme}://HOST:PORT,HOST:PORT`);
  }
  const { login, store } = readRedisUrl(scheme, network, ["partitions"]);
  const partitions = numberOption(network, "partitions", 1);
  const { openRedis } = await import("../core/stores/redis/index.ts");
  return openRedis(
    { cluster: network.hosts.map(toServer), ...login },
    { ...options, ...store, partitions },
  );
}

async function openRedisSentinel({ scheme, network }: StoreUrl, options: OpenOptions) {
  const [, master, database] = /^([^/]+)(?:\/(\d+))?$/.exec(network?.name ?? "") ?? [];
  if (!network || master === undefined) {
    const url = `${scheme}://SENTINEL:PORT,SENTINEL:PORT/MASTER/DATABASE-NUMBER`;
    throw new TypeError(`the store "${scheme}:" needs ${url}`);
  }
  const { login, store } = readRedisUrl(scheme, network, SENTINEL_OPTIONS);
  const sentinelLogin = readSentinelLogin(network, login);
  const { openRedis } = await import("../core/stores/redis/index.ts");
  const sentinels = network.hosts.map(toServer);
  const servers = { sentinels, master, sentinelLogin, ...login, database: Number(database ?? 0) };
  return openRedis(servers, { ...options, ...store });
}

const SENTINEL_OPTIONS = ["sentinel-auth", "sentinel-user", "sentinel-password"] as const;

/** The sentinels have the login of the servers, one of their own, or none. */
function readSentinelLogin({ options }: NetworkUrl, login: ReturnType<typeof toLogin>) {
  const [auth, user, password] = SENTINEL_OPTIONS.map((option) => options.get(option));
  if (auth !== undefined && auth !== "same") {
    throw new TypeError("the option sentinel-auth of a store's URL can only be same");
  }
  if (auth && (user ?? password) !== undefined) {
    throw new TypeError("sentinel-auth of a store's URL excludes sentinel-user, sentinel-password");
  }
  if (user !== undefined && password === undefined) {
    throw new TypeError("sentinel-user of a store's URL needs sentinel-password");
  }
  if (auth) return login;
  return {
    ...(user !== undefined && { user }),
    ...(password !== undefined && { password }),
    ...(login.tls && { tls: login.tls }),
  };
}

function readRedisUrl(scheme: string, url: NetworkUrl, more: readonly string[] = []) {
  const tls = scheme.startsWith("rediss");
  checkOptions(url, [...(tls ? ["ca", "cert", "key"] : []), "prefix", "replicas", ...more]);
  const prefix = url.options.get("prefix");
  return {
    login: toLogin(url, tls),
    store: {
      ...(prefix !== undefined && { prefix }),
      replicas: numberOption(url, "replicas", 0),
    },
  };
}

async function openRedisRest({ scheme, network: url }: StoreUrl, options: OpenOptions) {
  if (!url?.password || url.user !== "" || url.hosts.length > 1) {
    throw new TypeError(`the store "${scheme}:" needs one host, and its token as the password`);
  }
  const tls = scheme === "redis+https";
  checkOptions(url, [...(tls ? ["ca", "cert", "key"] : []), "prefix"]);
  const { openRedisRest } = await import("../core/stores/redis/rest.ts");
  const { nodeFetch } = await import("../core/stores/node-fetch.ts");
  const { host, port, password: token, name, options: given } = url;
  const server = toEndpoint({ host, port }, tls ? 443 : 80);
  const prefix = given.get("prefix");
  const connection = {
    url: `${tls ? "https" : "http"}://${server}/${name}`,
    token,
    fetch: nodeFetch(tls ? readTls(url) : undefined),
  };
  return openRedisRest(connection, { ...options, ...(prefix !== undefined && { prefix }) });
}

async function openRedlock({ scheme, network: url }: StoreUrl, options: OpenOptions) {
  const { openRedlock } = await import("../core/stores/redlock/index.ts");
  if (!url || !/^\d*$/.test(url.name)) {
    throw new TypeError(`the store "${scheme}:" needs ${scheme}://HOST:PORT,HOST:PORT,HOST:PORT`);
  }
  const tls = scheme === "redlocks";
  checkOptions(url, [...(tls ? ["ca", "cert", "key"] : []), "prefix"]);
  const login = { ...toLogin(url, tls), database: Number(url.name) };
  const masters = url.hosts.map((host) => ({ ...toServer(host), ...login }));
  const prefix = url.options.get("prefix");
  return openRedlock(masters, { ...options, ...(prefix !== undefined && { prefix }) });
}

function toServer({ host, port }: Host) {
  return { host, ...(port !== undefined && { port }) };
}

function toLogin(url: NetworkUrl, tls: boolean) {
  const { user, password } = url;
  return {
    ...(user !== "" && { user }),
    ...(password !== "" && { password }),
    ...(tls && { tls: readTls(url) }),
  };
}

async function openDynamodb({ scheme, network: url }: StoreUrl, options: OpenOptions) {
  if (!url?.name || url.hosts.length > 1 || url.port !== undefined) {
    throw new TypeError(`the store "${scheme}:" needs ${scheme}://REGION/TABLE`);
  }
  checkOptions(url, ["endpoint"]);
  const { openDynamodb } = await import("../core/stores/dynamodb/index.ts");
  const { host: region, name: table, user: accessKeyId, password: secretAccessKey } = url;
  const endpoint = url.options.get("endpoint");
  const connection = {
    region,
    table,
    ...(endpoint !== undefined && { endpoint }),
    ...(accessKeyId !== "" && { credentials: { accessKeyId, secretAccessKey } }),
  };
  return openDynamodb(connection, options);
}
