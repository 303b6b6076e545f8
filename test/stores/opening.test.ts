import { expect, test } from "vitest";
import { openDynamodb } from "../../core/stores/dynamodb/index.ts";
import { openEtcd, openEtcdGateway } from "../../core/stores/etcd/index.ts";
import { openMysql } from "../../core/stores/mysql/index.ts";
import { openPostgres } from "../../core/stores/postgres/index.ts";
import { openRedis } from "../../core/stores/redis/index.ts";
import { openRedisRest } from "../../core/stores/redis/rest.ts";
import { openRedlock } from "../../core/stores/redlock/index.ts";
import { openSqlite } from "../../core/stores/sqlite/index.ts";
import { openZooKeeper } from "../../core/stores/zookeeper/index.ts";

/** As JavaScript calls them: without types. */
const OPENERS = {
  openDynamodb,
  openEtcd,
  openEtcdGateway,
  openMysql,
  openPostgres,
  openRedis,
  openZooKeeper,
} as unknown as Readonly<Record<string, (given: unknown) => Promise<unknown>>>;

const URLS = { openSqlite, openRedlock, ...OPENERS } as typeof OPENERS;

test.each(Object.entries(URLS))(
  "%s refuses a URL, and names the call that takes one",
  async (name, open) => {
    const opening = open("store://user:secret@127.0.0.1/shop");
    await expect(opening).rejects.toThrow(TypeError);
    const message = await opening.catch((error) => error.message);
    expect(message).toContain(name);
    expect(message).toContain("open()");
    expect(message).not.toContain("secret");
  },
);

test.each(Object.entries(URLS))("%s without options shows an example", async (name, open) => {
  for (const nothing of [undefined, null]) {
    const opening = open(nothing);
    await expect(opening).rejects.toThrow(TypeError);
    await expect(opening).rejects.toThrow(`${name} needs`);
  }
});

test.each([
  ["openMysql", {}, /host/],
  ["openMysql", { host: "127.0.0.1", database: "shop" }, /user/],
  ["openPostgres", {}, /host/],
  ["openPostgres", { host: "127.0.0.1", user: "shop" }, /database/],
  ["openRedis", {}, /host/],
  ["openEtcd", {}, /endpoint/],
  ["openEtcd", { endpoints: "127.0.0.1:2379" }, /endpoints/],
  ["openEtcdGateway", { endpoints: "127.0.0.1:2379" }, /endpoints/],
  ["openZooKeeper", {}, /server/],
  ["openZooKeeper", { servers: "127.0.0.1:2181" }, /servers/],
  ["openDynamodb", {}, /region/],
] as const)(
  "%s names the option that is missing or of a wrong type in %o",
  async (name, options, missing) => {
    const opening = OPENERS[name]?.(options);
    await expect(opening).rejects.toThrow(TypeError);
    await expect(opening).rejects.toThrow(missing);
  },
);

const SERVER = { host: "redis-1" };
const SENTINELS = { sentinels: [SERVER], master: "shop" };

test.each([
  ["openRedis", { ...SERVER, master: "shop" }, "a server (host) or sentinels, not both"],
  ["openRedis", { ...SERVER, cluster: [SERVER] }, "a server (host) or a cluster, not both"],
  ["openRedis", { cluster: "redis-1" }, "cluster must be a list"],
  ["openRedis", { cluster: null }, "cluster must be a list"],
  ["openRedis", { cluster: [{ ...SERVER, prot: 1 }] }, '"prot" of a server of cluster'],
  ["openRedis", { ...SENTINELS, sentinelLogin: { pasword: "x" } }, '"pasword" of sentinelLogin'],
  ["openRedis", { ...SERVER, tls: { rejectUnauthorized: false } }, '"rejectUnauthorized" of tls'],
  ["openRedlock", [{ ...SERVER, tls: true }], "tls must be an object"],
  ["openMysql", { ...SERVER, tls: { minVersion: "TLSv1" } }, '"minVersion" of tls'],
  ["openPostgres", { ...SERVER, tls: { servername: "x" } }, '"servername" of tls'],
  ["openEtcd", { endpoints: ["etcd-1:1"], tls: { insecure: true } }, '"insecure" of tls'],
  ["openEtcdGateway", { endpoints: ["etcd-1:1"], tls: { agent: 1 } }, '"agent" of tls'],
  ["openZooKeeper", { servers: ["zk-1"], tls: { checkServerIdentity: 1 } }, "of tls"],
  ["openRedisRest", undefined, "openRedisRest needs"],
  ["openRedisRest", { url: "https://h", token: "t", timout: 5 }, '"timout" of redis'],
  ["openRedisRest", { url: "https://h", token: "t", fetch: 5 }, "fetch must be a function"],
] as const)("%s refuses what it would ignore in %o", async (name, given, problem) => {
  const openers = { ...URLS, openRedisRest } as typeof OPENERS;
  await expect(openers[name]?.(given)).rejects.toThrow(problem);
});

test("openRedlock refuses a master that is named twice, also in other letters", async () => {
  const twice = openRedlock([{ host: "localhost" }, { host: "LOCALHOST" }, { host: "redis-3" }]);
  await expect(twice).rejects.toThrow(/is named twice/);
});

test("openRedlock refuses a list of texts, and a list without masters", async () => {
  await expect(openRedlock(["redis-1:6379"] as never)).rejects.toThrow(
    /openRedlock needs .*not a URL or another text/,
  );
  await expect(openRedlock([])).rejects.toThrow(/number of masters must be/);
});
