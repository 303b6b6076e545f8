import { existsSync } from "node:fs";
import { describe, expect, expectTypeOf, test } from "vitest";
import type { EtcdStore } from "../../core/stores/etcd/store.ts";
import type { MemoryStore } from "../../core/stores/memory/index.ts";
import { openRedisRest } from "../../core/stores/redis/rest.ts";
import type { SqlStore } from "../../core/stores/sql/store.ts";
import { openSqlite } from "../../core/stores/sqlite/index.ts";
import type { ZooKeeperStore } from "../../core/stores/zookeeper/index.ts";
import { readConfig } from "../../infra/config.ts";
import { type AnyStore, open } from "../../infra/open.ts";
import { parseStoreUrl } from "../../infra/store-url.ts";
import { temporaryFile } from "../support/under-test.ts";

describe("a store's URL", () => {
  test("is taken apart", () => {
    expect(parseStoreUrl("sqlite:/var/lib/shop.db")).toEqual({
      scheme: "sqlite",
      path: "/var/lib/shop.db",
      network: undefined,
    });
    const { scheme, network } = parseStoreUrl(
      "mysqls://a%40b:p%2Fw%3A@db.example:3307/shop?ca=%2Fca.pem",
    );
    expect(scheme).toBe("mysqls");
    expect(network).toEqual({
      host: "db.example",
      port: 3307,
      hosts: [{ host: "db.example", port: 3307 }],
      user: "a@b",
      password: "p/w:",
      name: "shop",
      options: new Map([["ca", "/ca.pem"]]),
    });
    expect(parseStoreUrl("mysql://[::1]:3306/shop").network?.host).toBe("::1");
  });

  test("whose user or password is not written as it has to be is refused, without a word of it", async () => {
    for (const url of [
      "mysql://u:p@ss/hush@h/x",
      "mysql://u:%zzhush@h/x",
      "mysql://u:pa#hush@h/x",
      "mysql://u:12#hush@h/x",
      "mysql://u:12/hush#s@h/x",
      "mysql://u:12/x?hush@h/x",
      "mysql://u:pa:hush@:port/x",
      "mysql://u:pa hush@h h/x",
      "mysql://u:pa hush@",
      "etcd://u:pa hush@h,",
    ]) {
      await expect(open(url)).rejects.toThrow(/%25.*%40/);
      await expect(open(url)).rejects.not.toThrow(/hush/);
      await expect(open(url)).rejects.toThrow(TypeError);
    }
  });

  test("whose parts would be ignored is refused", async () => {
    for (const [url, hint] of [
      ["redis://h?prefix=shop#2&replicas=2", "# %23"],
      ["redis://h?replicas=", "replicas"],
      ["redis://h?prefix=", "prefix"],
      ["mysql://h/x?connections=", "connections"],
      ["mysql://a,b/x", "mysql://HOST"],
    ] as const) {
      await expect(open(url)).rejects.toThrow(hint);
    }
    const plain = { token: "t", fetch: () => Promise.reject(new Error("it was asked")) };
    for (const url of ["https://:hidden@h", "https://h#hidden", "https://h?hidden"]) {
      const opening = openRedisRest({ url, ...plain });
      await expect(opening).rejects.toThrow("without user, password and query");
    }
  });

  test("has each option once", async () => {
    for (const url of [
      "redis://h?replicas=1&replicas=0",
      "redis+cluster://h?replicas=1&replicas=1",
    ]) {
      await expect(open(url)).rejects.toThrow('the option "replicas" twice');
    }
  });

  test("has whole numbers in digits, and its error shows the text", async () => {
    for (const [url, option, text] of [
      ["redis://h?replicas=abc", "replicas", "abc"],
      ["redis+cluster://a?partitions=1e1", "partitions", "1e1"],
      ["mysql://h/x?connections=0x10", "connections", "0x10"],
      ["postgres://h/x?connections=+5", "connections", " 5"],
    ] as const) {
      const problem = `option ${option} of the store's URL must be a whole number, not "${text}"`;
      await expect(open(url)).rejects.toThrow(problem);
    }
  });

  test("of PostgreSQL encrypts and checks the host, or does not encrypt at all", async () => {
    for (const url of [
      "postgres://db/shop?sslmode=prefer",
      "postgres://db/shop?sslmode=no-verify",
      "postgres://db/shop?sslrootcert=/ca.pem",
      "postgres://db/shop?sslmode=verify-full&sslrootcert=/no/such/file",
      "postgres://db/shop?host=other",
      "postgres://a,b/shop",
      "postgresql://db",
    ]) {
      await expect(open(url)).rejects.toThrow(TypeError);
    }
    for (const url of [
      "postgres://db/shop",
      "postgresql://u:p@[::1]:5433/shop?sslmode=require",
      "postgres://db/shop?sslmode=verify-full&sslrootcert=system",
    ]) {
      await (await open(url)).close();
    }
    const bound = open("postgres://db/shop?sslmode=require&channel_binding=require");
    await expect(bound).rejects.toThrow("leave out the option channel_binding");
  });

  test("of an IPv6 address is in errors as in the URL", async () => {
    for (const url of ["mysql://[::1]:1/shop", "postgres://[::1]:1/shop"]) {
      await using store = await open(url);
      const locking = store.locks.tryLock("a", { ttl: "1s", deadline: { remaining: () => 2_000 } });
      await expect(locking).rejects.toThrow(url);
    }
  });

  test("of a file has its path after the colon, or after an empty host", async () => {
    const { file, remove } = await temporaryFile();
    for (const url of [`sqlite:${file}`, `sqlite://${file}`]) {
      const { locks, close } = await open(url);
      await (await locks.lock("a", { ttl: 1_000, wait: 0 })).unlock();
      expect((await locks.inspect("a")).fence).toBeDefined();
      await close();
    }
    expect(existsSync(file)).toBe(true);
    for (const url of ["sqlite:", "sqlite://shop.db", "sqlite://a b", "sqlite://:memory:"]) {
      await expect(open(url)).rejects.toThrow("sqlite:/var/lib/shop.db");
    }
    // SQLite takes an empty path for a database of the connection alone.
    await expect(openSqlite("")).rejects.toThrow('a path such as "shop.db"');
    await expect(open("sqlite:shop.db?mode=ro")).rejects.toThrow('a path without "?"');
    await remove();
  });

  test("that is none is refused with what there is", async () => {
    for (const url of [
      "",
      "shop.db",
      "://x",
      "nonsense:x",
      "mysql:shop",
      "mysql://",
      "mysql:///shop",
      "zookeeper:shop",
      "zookeeper://h/x?timeout=5",
    ]) {
      await expect(open(url)).rejects.toThrow(TypeError);
    }
    await expect(open("nonsense:x")).rejects.toThrow("sqlite:PATH");
    await expect(open("constructor:x")).rejects.toThrow(TypeError);
    await expect(open("mysql://h/x?connections=0")).rejects.toThrow(RangeError);
    await expect(open("mysql://h/x?conections=5")).rejects.toThrow("conections");
    for (const url of ["redis:x", "redis://a,b", "redis://h/shop", "redis://h/-1"]) {
      await expect(open(url)).rejects.toThrow(TypeError);
    }
    for (const option of ["prefix={a}", "prefix=", "replicas=-1", "replicas=some"]) {
      await expect(open(`redis://h?${option}`)).rejects.toThrow(RangeError);
    }
    await expect(open("redis://h?ca=x")).rejects.toThrow("ca");
    for (const url of ["dynamodb:shop", "dynamodb://eu-west-1", "dynamodb://eu-west-1:1/shop"]) {
      await expect(open(url)).rejects.toThrow("dynamodb://REGION/TABLE");
    }
    await expect(open("dynamodb://local/shop?table=x")).rejects.toThrow("endpoint");
    for (const url of [
      ...["redis+cluster:x", "redis+cluster://a,b/1", "redis+cluster://a,,b"],
      ...["redis+sentinel:x", "redis+sentinel://a,b", "redis+sentinel://a/shop/x"],
      ...["redis+sentinel://a/shop?sentinel-auth=no", "redis+cluster://a?ca=x"],
      ...["user=u", "auth=same&sentinel-password=p"].map(
        (x) => `redis+sentinel://a/shop?sentinel-${x}`,
      ),
    ]) {
      await expect(open(url)).rejects.toThrow(TypeError);
    }
    for (const count of ["0", "2000", "many"]) {
      await expect(open(`redis+cluster://a?partitions=${count}`)).rejects.toThrow(RangeError);
    }
    await using spread = await open(
      "redis+cluster://u:p@a:1,b?prefix=shop&replicas=1&partitions=8",
    );
    expect(spread.url).toBe("redis+cluster://a:1,b?prefix=shop&partitions=8");
    await expect(open("nonsense:x")).rejects.toThrow("rediss+cluster://…, rediss+sentinel://…");
    await expect(open("zookeeper://h,i//b")).rejects.toThrow("/shop/locks");
    await expect(open("zookeeper://:hush@h")).rejects.toThrow(/^user must/);
    for (const url of ["redlock:x", "redlock://a,b/shop", "redlock://a,,b"]) {
      await expect(open(url)).rejects.toThrow(TypeError);
    }
    for (const url of ["redlock://a:1,b:2,a:1", "redlock://a,b,c?prefix="]) {
      await expect(open(url)).rejects.toThrow(RangeError);
    }
    await expect(open("redlock://a,b,c?replicas=1")).rejects.toThrow("replicas");
  });
});

/** Nothing connects before its first use. */
const URLS = {
  memory: "memory:",
  sqlite: "sqlite::memory:",
  mysql: "mysql://root@127.0.0.1:1/shop",
  postgres: "postgres://postgres@127.0.0.1:1/shop",
  etcd: "etcd://127.0.0.1:1/shop",
  "etcd+http": "etcd+http://127.0.0.1:1",
  redis: "redis://127.0.0.1:1",
  "redis+http": "redis+http://:token@127.0.0.1:1",
  "redis+cluster": "redis+cluster://127.0.0.1:1,127.0.0.1:2",
  "redis+sentinel": "redis+sentinel://127.0.0.1:1,127.0.0.1:2/shop/1",
  redlock: "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
  zookeeper: "zookeeper://127.0.0.1:1",
  dynamodb: "dynamodb://eu-west-1/shop",
};

type StoreAt<Url extends string> = Awaited<ReturnType<typeof open<Url>>>;

type StorePart = Parameters<AnyStore["has"]>[0];

const PARTS: readonly StorePart[] = [
  ...([
    "inventory",
    "journal",
    "database",
    "etcd",
    "redis",
    "zookeeper",
    "dynamodb",
    "table",
    "prefix",
  ] as const),
];

describe("a store that was opened by its URL", () => {
  test("has each part, or throws an error that names the stores with the part", async () => {
    const stores = new Map<string, AnyStore>();
    for (const [scheme, url] of Object.entries(URLS)) stores.set(scheme, await open(url));
    const having = (part: StorePart) => [...stores].filter(([, store]) => store.has(part));
    for (const [scheme, store] of stores) {
      for (const part of PARTS) {
        if (store.has(part)) {
          expect(store[part], `${part} of ${scheme}`).toBeDefined();
          continue;
        }
        const message = (() => {
          try {
            return String(store[part]);
          } catch (error) {
            expect(error).toBeInstanceOf(TypeError);
            return (error as Error).message;
          }
        })();
        expect(message).toContain(`the store ${scheme}: has no ${part}; stores that have one: `);
        const named = message.split("stores that have one: ")[1]?.split(", ").sort();
        expect(named).toEqual(
          having(part)
            .map(([name]) => `${name}:`)
            .sort(),
        );
      }
    }
    for (const store of stores.values()) await store.close();
  });

  test("may be copied although parts are missing", async () => {
    await using store = await open("memory:");
    const { locks, elections, journal, ...rest } = { ...store };
    expect([locks, elections, journal]).toEqual([store.locks, store.elections, store.journal]);
    expect(Object.keys(rest).sort()).toEqual(["close", "has", "url"]);
  });

  test("has the type that the scheme of a literal URL says", async () => {
    await using memory = await open("memory:");
    expectTypeOf(memory).toExtend<MemoryStore>();
    // @ts-expect-error A store in memory keeps no stock.
    expect(() => memory.inventory).toThrow(TypeError);
    const path = ":memory:";
    await using sqlite = await open(`sqlite:${path}`);
    expectTypeOf(sqlite).toExtend<SqlStore>();
    const text: string = "memory:";
    await using any = await open(text);
    expectTypeOf(any).toEqualTypeOf<AnyStore>();
    expectTypeOf<StoreAt<"mysqls://shop@db/shop">>().toExtend<SqlStore>();
    expectTypeOf<StoreAt<"etcd+https://etcd">>().toExtend<EtcdStore>();
    expectTypeOf<StoreAt<"zookeeper://a,b">>().toExtend<ZooKeeperStore>();
    expectTypeOf<StoreAt<"zookeeper://a,b">>().not.toHaveProperty("inventory");
  });
});

test("the environment is read at once, and all that is wrong with it is told at once", () => {
  const store = "sqlite:/state/lockstep/lockstep.db";
  expect(readConfig({ XDG_STATE_HOME: "/state" })).toEqual({ store, secret: undefined });
  const environment = { LOCKSTEP_STORE: "", LOCKSTEP_SECRET: "hush" };
  expect(() => readConfig(environment)).toThrow(/LOCKSTEP_STORE.*LOCKSTEP_SECRET/);
  expect(() => readConfig(environment)).not.toThrow(/hush/);
});

test("what happens to locks is published on a diagnostics channel", async () => {
  const { subscribe, unsubscribe } = await import("node:diagnostics_channel");
  const seen: unknown[] = [];
  const listen = (event: unknown) => void seen.push((event as { type: string }).type);
  subscribe("lockstep:lock", listen);
  const { locks, close } = await open("memory:");
  const lock = await locks.lock("a", { ttl: 1_000, wait: 0 });
  await locks.tryLock("a", { ttl: 1_000 });
  await lock.ensure(5_000);
  await lock.unlock();
  await close();
  unsubscribe("lockstep:lock", listen);
  expect(seen).toEqual(["acquired", "busy", "renewed", "released"]);
});
