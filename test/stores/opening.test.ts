import { expect, test } from "vitest";
import { openDynamodb } from "../../core/stores/dynamodb/index.ts";
import { openEtcd, openEtcdGateway } from "../../core/stores/etcd/index.ts";
import { openMysql } from "../../core/stores/mysql/index.ts";
import { openPostgres } from "../../core/stores/postgres/index.ts";
import { openRedis } from "../../core/stores/redis/index.ts";
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
