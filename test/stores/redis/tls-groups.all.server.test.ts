import { readFileSync } from "node:fs";
import { inspect } from "node:util";
import { createCluster } from "@redis/client";
import { Cluster, Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { stockLock } from "../../../core/inventory/inventory.ts";
import { hasCode } from "../../../core/lock/errors.ts";
import { redisClient } from "../../../core/stores/redis/client/open.ts";
import { openRedis, type RedisStore } from "../../../core/stores/redis/index.ts";
import { open } from "../../../infra/open.ts";
import type { NodeConfig } from "../../../infra/servers/server-kind.ts";
import { type Authority, makeAuthority } from "../../support/certificates.ts";
import { known } from "../../support/known.ts";
import { RedisCluster, type RedisGroup, RedisSentinels } from "../../support/redis-group.ts";
import { anyPrefix } from "../../support/redis-under-test.ts";
import { until, within } from "../../support/until.ts";

const HOLD = { ttl: "60s", wait: "60s" } as const;
const HOST = "localhost";
const LOCK = stockLock("cup");

/** Every password has this word, which no error may show. */
const CANARY = "canary";

/** Of the default user, and of a user with the least rights; the sentinels have others. */
const ADMIN = "canary-admin";
const SHOP = "canary-shop";
const SENTINEL = "canary-sentinel/+@1";
const WATCHER = "canary-watcher";

let authority: Authority;
let stranger: Authority;
let ca: string;
let files: readonly string[];

beforeAll(async () => {
  [authority, stranger] = await Promise.all([makeAuthority(), makeAuthority()]);
  ca = readFileSync(authority.ca, "utf8");
  const { cert, key } = await authority.sign(HOST);
  files = ["--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", authority.ca];
});

afterAll(async () => {
  for (const each of [authority, stranger]) await each[Symbol.asyncDispose]();
});

/** Every connection has TLS: the port of plain text is closed. */
function tlsOnly({ port }: NodeConfig): readonly string[] {
  const ports = ["--port", "0", "--tls-port", String(port), "--bind", "127.0.0.1", "-::1"];
  return [...ports, ...files, "--tls-auth-clients", "no", "--tls-replication", "yes"];
}

/** Every connection has a login: the default user has a password. */
function logins(): readonly string[] {
  const rights = ["~{test-*", "&{test-*", "+@all", "-@admin", "-@dangerous"];
  const users = ["--requirepass", ADMIN, "--user", "shop", "on", `>${SHOP}`, ...rights];
  return [...users, "--masterauth", ADMIN];
}

/** Whether a server answers over TLS, if only that it wants a login. */
async function serves(port: number): Promise<boolean> {
  await using redis = redisClient({ host: HOST, port, tls: { ca } });
  return await redis.call(["PING"]).then(
    () => true,
    (error) => hasCode(error, "STORE_REFUSED"),
  );
}

/** Each node also announces the name of its host. */
async function startCluster(): Promise<RedisCluster> {
  const names = ["--cluster-announce-hostname", HOST];
  const cluster = await RedisCluster.start({
    args: (config) => [
      ...tlsOnly(config),
      ...logins(),
      ...["--tls-cluster", "yes", ...names, "--cluster-preferred-endpoint-type", "hostname"],
    ],
    serves,
    host: HOST,
    login: { password: ADMIN, tls: { ca } },
  });
  for (const node of cluster.nodes) {
    await until(async () => {
      const info = String(await cluster.tell(node, "CLUSTER", "INFO"));
      const slots = await cluster.tell(node, "CLUSTER", "SLOTS");
      return info.includes("cluster_state:ok") && !JSON.stringify(slots).includes('"?"');
    });
  }
  return cluster;
}

/** The sentinels have passwords of their own, and name each server by the name of its host. */
async function startSentinels(): Promise<RedisSentinels> {
  const watcher = ["--user", "watcher", "on", `>${WATCHER}`, "&*", "+@all"];
  const group = await RedisSentinels.start({
    args: (config, all) => {
      const isSentinel = all.indexOf(config) >= 2;
      const ownLogins = isSentinel ? ["--requirepass", SENTINEL, ...watcher] : logins();
      const name = isSentinel ? [] : ["--replica-announce-ip", HOST];
      return [...tlsOnly(config), ...ownLogins, ...name];
    },
    serves,
    host: HOST,
    login: { password: ADMIN, tls: { ca } },
    sentinelLogin: { password: SENTINEL, tls: { ca } },
  });
  const [master] = group.nodes;
  for (const sentinel of group.sentinels) {
    for (const command of [
      "REMOVE lockstep",
      "CONFIG SET resolve-hostnames yes",
      "CONFIG SET announce-hostnames yes",
      `MONITOR lockstep ${HOST} ${master?.config.port} 2`,
      `SET lockstep auth-pass ${ADMIN} down-after-milliseconds 2000 failover-timeout 10000`,
    ]) {
      await group.tell(sentinel, "SENTINEL", ...command.split(" "));
    }
  }
  for (const sentinel of group.sentinels) {
    await until(async () => {
      const about = await group.tell(sentinel, "SENTINEL", "MASTER", "lockstep");
      return String(about).includes("num-slaves,1,num-other-sentinels,2,");
    });
  }
  return group;
}

interface Access {
  readonly scheme: string;

  /** USER:PASSWORD. */
  readonly login: string;

  /** Each as HOST:PORT. */
  readonly hosts: readonly string[];
  readonly prefix: string;
  readonly options: string;

  /** The options of the login at the sentinels. */
  readonly sentinelOptions: string;
}

const OF_WATCHER = `&sentinel-user=watcher&sentinel-password=${WATCHER}`;

/** Returns a URL of the group, by default one with which a store can be used. */
function urlOf(group: RedisGroup, access: Partial<Access> = {}): string {
  const { scheme = "rediss", login = `shop:${SHOP}`, prefix = anyPrefix() } = access;
  const { hosts = hostsOf(group), options = `&ca=${authority.ca}` } = access;
  const { sentinelOptions = OF_WATCHER } = access;
  const query = `?prefix=${prefix}${options}`;
  return group instanceof RedisSentinels
    ? `${scheme}+sentinel://${login}@${hosts}/lockstep${query}${sentinelOptions}`
    : `${scheme}+cluster://${login}@${hosts}${query}`;
}

function hostsOf(group: RedisGroup, host = HOST): readonly string[] {
  const nodes = group instanceof RedisSentinels ? group.sentinels : group.nodes;
  return nodes.map(({ config: { port } }) => `${host}:${port}`);
}

type Shop = Pick<RedisStore, "locks" | "inventory"> & AsyncDisposable;

/** Sells twice, and hands the lock over between the sales to a waiter of another client. */
async function sellAndHandOver(openOnce: () => Promise<Shop>, meanwhile = async () => {}) {
  await using shop = await openOnce();
  await using other = await openOnce();
  await shop.inventory.set({ sku: "cup", quantity: 2, operationId: "set" });
  const held = await shop.locks.lock(LOCK, HOLD);
  const sale = { sku: "cup", quantity: 1, operationId: "1", fence: held.fence };
  expect(await shop.inventory.decrement(sale)).toMatchObject({ remaining: 1 });
  const waiting = other.locks.lock(LOCK, HOLD);
  await until(async () => (await shop.locks.inspect(LOCK)).waiters === 1);
  await meanwhile();
  expect(await held.unlock()).toBe("released");
  const next = await waiting;
  const second = { ...sale, operationId: "2", fence: next.fence };
  expect(await known(() => other.inventory.decrement(second))).toMatchObject({ remaining: 0 });
  expect(await next.unlock()).toBe("released");
}

/** Returns the error of a lock, which comes soon, though the caller would wait longer, and shows no password. */
async function failureAt(url: string): Promise<Error> {
  await using store = await open(url);
  const locked = () => Promise.reject(new Error("it was locked"));
  const failing = () => store.locks.lock("a", HOLD).then(locked, (error: Error) => error);
  const error = await until(async () => {
    const failure = await within(10_000, failing());
    return !isLate(failure) && failure;
  });
  const shown = inspect(error, { depth: 10, showHidden: true }) + JSON.stringify(error);
  expect(shown).not.toContain(CANARY);
  return error;
}

/** Whether the client has given up after its two seconds, which a busy server may exceed. */
function isLate({ message }: Error): boolean {
  return message.includes("in time");
}

/** The user may not read INFO, by which ioredis checks a server. */
const READY = { enableReadyCheck: false };

/** Returns connected clients of the packages with the settings of the URL. */
async function clientsOf(group: RedisGroup) {
  const login = { username: "shop", password: SHOP };
  const servers = hostsOf(group).map((each) => ({ host: HOST, port: Number(each.split(":")[1]) }));
  if (group instanceof RedisSentinels) {
    const atSentinels = {
      sentinelUsername: "watcher",
      sentinelPassword: WATCHER,
      sentinelTLS: { ca },
    };
    const ofServers = { ...login, tls: { ca }, enableTLSForSentinelMode: true, ...READY };
    return [new Redis({ sentinels: servers, name: "lockstep", ...atSentinels, ...ofServers })];
  }
  const nodeRedis = createCluster({
    rootNodes: servers.map((socket) => ({ socket })),
    defaults: { ...login, socket: { tls: true, ca } },
  });
  await nodeRedis.connect();
  const ioredis = new Cluster([...servers], {
    // By default, it would compare the certificates with addresses.
    dnsLookup: (address, done) => done(null, address),
    redisOptions: { ...login, tls: { ca }, ...READY },
  });
  return [ioredis, nodeRedis];
}

/** Makes the servers name each other by address, or again by the name of the host. */
async function announce(group: RedisGroup, by: "ip" | "hostname"): Promise<void> {
  if (group instanceof RedisSentinels) {
    const [what, state] = ["announce-hostnames", by === "ip" ? "no" : "yes"];
    for (const node of group.sentinels)
      await group.tell(node, "SENTINEL", "CONFIG", "SET", what, state);
  } else {
    const type = "cluster-preferred-endpoint-type";
    for (const node of group.nodes) await group.tell(node, "CONFIG", "SET", type, by);
  }
}

const refusal = (message: RegExp) => ({
  code: "STORE_REFUSED",
  retryable: false,
  message: expect.stringMatching(message),
});

type Refusal = readonly [
  name: string,
  access: (group: RedisGroup) => Partial<Access>,
  message: RegExp,
];

const REFUSALS: readonly Refusal[] = [
  ["another authority", () => ({ options: `&ca=${stranger.ca}` }), /certificate/],
  ["no authority", () => ({ options: "" }), /certificate/],
  ["another name of the host", (group) => ({ hosts: hostsOf(group, "127.0.0.1") }), /altnames/],
  ["a wrong password", () => ({ login: `shop:${CANARY}-wrong` }), /WRONGPASS/],
  [
    "a wrong password beside a dead host",
    (group) => ({
      login: `shop:${CANARY}-wrong`,
      hosts: [`${HOST}:1`, ...hostsOf(group)],
    }),
    /WRONGPASS/,
  ],
  ["no password", () => ({ login: "" }), /NOAUTH/],
];

const OF_SENTINELS: readonly Refusal[] = [
  [
    "a wrong password of the sentinels",
    () => ({ sentinelOptions: `&sentinel-password=${CANARY}-wrong` }),
    /WRONGPASS.*the sentinel localhost:/,
  ],
  [
    "no password of the sentinels",
    () => ({ sentinelOptions: "" }),
    /NOAUTH.*the sentinel localhost:/,
  ],
];

const GROUPS: readonly [string, () => Promise<RedisGroup>, readonly Refusal[]][] = [
  ["a Redis Cluster", startCluster, REFUSALS],
  ["a Redis with sentinels", startSentinels, [...REFUSALS, ...OF_SENTINELS]],
];

describe.each(GROUPS)("%s with TLS and logins", (_, start, refusals) => {
  let group: RedisGroup;
  beforeAll(async () => {
    group = await start();
  });
  afterAll(() => group?.[Symbol.asyncDispose]());

  test("sells and hands over at every master, with a password alone or the least rights", async () => {
    const masters =
      group instanceof RedisCluster ? await group.prefixesOfAllMasters() : [anyPrefix()];
    for (const prefix of masters) await sellAndHandOver(() => open(urlOf(group, { prefix })));
    const sentinelOptions = `&sentinel-password=${encodeURIComponent(SENTINEL)}`;
    const url = urlOf(group, { login: `:${ADMIN}`, sentinelOptions });
    await sellAndHandOver(() => open(url));
  });

  test("sells and hands over in a failover", async () => {
    const prefix = anyPrefix();
    const openOnce = () => open(urlOf(group, { prefix }));
    await sellAndHandOver(openOnce, () => group.failOver(prefix));
  });

  test("gives certificates and logins to Lockstep with clients that are handed in", async () => {
    for (const client of await clientsOf(group)) {
      const prefix = anyPrefix();
      await sellAndHandOver(() => openRedis(client, { prefix }));
      await client.disconnect();
    }
  });

  test.each(refusals)("refuses %s", async (_name, access, message) => {
    expect(await failureAt(urlOf(group, access(group)))).toMatchObject(refusal(message));
  });

  test("refuses a server that is announced by an address that is not in its certificate", async () => {
    const [host = ""] = hostsOf(group);
    await announce(group, "ip");
    const failures: Error[] = [];
    // One of three masters is the host itself.
    await until(async () => {
      await using store = await open(urlOf(group, { hosts: [host] }));
      await store.locks.list("").catch((error: Error) => isLate(error) || failures.push(error));
      return failures.length > 0;
    });
    await announce(group, "hostname");
    expect(failures).toMatchObject([refusal(/altnames/)]);
  });

  test("answers no client without TLS, and the error says why", async () => {
    const url = urlOf(group, { scheme: "redis", options: "" });
    expect(await failureAt(url)).toMatchObject({
      code: "STORE_UNAVAILABLE",
      message: expect.stringContaining("without TLS"),
    });
  });
});
