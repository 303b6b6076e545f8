import { once } from "node:events";
import { Etcd3 } from "etcd3";
import { Cluster, Redis } from "ioredis";
import { createPool as createCallbackPool } from "mysql2";
import { createPool } from "mysql2/promise";
import pg from "pg";
import { describe, expect, inject, test } from "vitest";
import { stockLock } from "../../core/inventory/inventory.ts";
import { openEtcd } from "../../core/stores/etcd/index.ts";
import { migrate, openMysql } from "../../core/stores/mysql/index.ts";
import { openPostgres } from "../../core/stores/postgres/index.ts";
import { openRedis } from "../../core/stores/redis/index.ts";
import { openRedlock } from "../../core/stores/redlock/index.ts";
import { anyPrefix } from "../support/etcd-under-test.ts";
import { redisServer } from "../support/redis-under-test.ts";
import { temporaryDatabase } from "../support/under-test.ts";

const OPTIONS = { ttl: "10s", wait: "10s" } as const;

describe("a client of ioredis", () => {
  const [port = 0] = redisServer("redis").ports;

  test("gives a store its settings, and is neither used nor closed", async () => {
    const client = new Redis({ host: "127.0.0.1", port, keyPrefix: "theirs:" });
    const prefix = anyPrefix();
    const store = await openRedis(client, { prefix });
    await store.inventory.set({ sku: "cup", quantity: 2, operationId: "set" });
    const lock = await store.locks.lock(stockLock("cup"), OPTIONS);
    const sale = { sku: "cup", quantity: 1, operationId: "sale" };
    expect(await store.inventory.decrement({ ...sale, fence: lock.fence })).toMatchObject({
      remaining: 1,
    });
    expect(
      await store.redis.call(["EXISTS", `{${prefix}}lock:${stockLock("cup")}`], { reads: true }),
    ).toBe("1");
    await lock.unlock();
    await store.close();
    expect(await client.ping()).toBe("PONG");
    await client.quit();
  });

  test("does not end commands that block by its own timeout of silence", async () => {
    const client = new Redis({ host: "127.0.0.1", port, socketTimeout: 200, lazyConnect: true });
    const store = await openRedis(client, { prefix: anyPrefix() });
    expect(await store.redis.call(["BLPOP", `{${anyPrefix()}}none`, "0.6"])).toBeUndefined();
    await store.close();
    client.disconnect();
  });

  test("stands for a master of Redlock", async () => {
    const clients = redisServer("redlock").ports.map((each) => new Redis(each, "127.0.0.1"));
    const store = await openRedlock(clients, { prefix: anyPrefix() });
    await using lock = await store.locks.lock("a", OPTIONS);
    lock.assertHeld();
    await lock.unlock();
    await store.close();
    for (const client of clients) expect(await client.quit()).toBe("OK");
  });

  test("that checks no certificate is refused", async () => {
    const settings = { tls: { rejectUnauthorized: false }, lazyConnect: true };
    const unchecked = new Redis({ port, ...settings });
    await expect(openRedis(unchecked)).rejects.toThrow(/rejectUnauthorized/);
    const nodes = [{ host: "127.0.0.1", port }];
    const cluster = new Cluster(nodes, { redisOptions: settings, lazyConnect: true });
    await expect(openRedis(cluster)).rejects.toThrow(/rejectUnauthorized/);
    cluster.disconnect();
    unchecked.disconnect();
  });
});

describe("a pool of mysql2", () => {
  test("gives a store its settings, and is neither used nor closed", async () => {
    const [server] = inject("sqlServers");
    if (!server) throw new Error("no SQL server is running");
    const database = await temporaryDatabase(server);
    const pool = createPool({ ...database.options, connectionLimit: 3 });
    const callbackPool = createCallbackPool({ ...database.options });
    for (const each of [pool, callbackPool]) {
      const store = await openMysql(each);
      await migrate(store.database);
      const lock = await store.locks.lock("a", OPTIONS);
      expect(lock.fence.token).toBeGreaterThan(0n);
      await lock.unlock();
      await store.close();
    }
    const [rows] = await pool.query("SELECT COUNT(*) AS locks FROM lockstep_lock");
    expect(rows).toEqual([{ locks: 0 }]);
    await pool.end();
    await new Promise((resolve) => callbackPool.end(resolve));
    await database.drop();
  });

  test("without a database, with a socket path or an unchecked certificate is refused", async () => {
    const settings = { host: "db.internal", user: "app" };
    const refuse = async (more: object, message: RegExp) => {
      const pool = createPool({ ...settings, ...more });
      await expect(openMysql(pool)).rejects.toThrow(message);
      await pool.end();
    };
    await refuse({}, /needs a user and a database/);
    await refuse({ database: "shop", socketPath: "/run/mysqld.sock" }, /socket path/);
    await refuse({ database: "shop", ssl: { rejectUnauthorized: false } }, /rejectUnauthorized/);
  });
});

describe("a pool of pg", () => {
  test("gives a store its settings, and is neither used nor closed", async () => {
    const [server] = inject("postgresServers");
    if (!server) throw new Error("no PostgreSQL server is running");
    const database = await temporaryDatabase(server);
    const pools = [
      new pg.Pool({ ...database.options, max: 3 }),
      new pg.Pool({ connectionString: database.url }),
    ];
    for (const pool of pools) {
      const store = await openPostgres(pool);
      await migrate(store.database);
      const lock = await store.locks.lock("a", OPTIONS);
      expect(lock.fence.token).toBeGreaterThan(0n);
      expect(pool.totalCount).toBe(0);
      await lock.unlock();
      await store.close();
      const client = await pool.connect();
      const { rows } = await client.query("SELECT COUNT(*)::INT AS locks FROM lockstep_lock");
      expect(rows).toEqual([{ locks: 0 }]);
      const ended = once(client, "end");
      client.release();
      await pool.end();
      await ended;
    }
    await database.drop();
  });

  test("with a socket path, an unchecked certificate or a function for its password is refused", async () => {
    const settings = { host: "db.internal", user: "app", database: "shop" };
    const refuse = async (more: object, message: RegExp) => {
      const pool = new pg.Pool({ ...settings, ...more });
      await expect(openPostgres(pool)).rejects.toThrow(message);
      await pool.end();
    };
    await refuse({ host: "/run/postgresql" }, /socket path/);
    await refuse({ ssl: { rejectUnauthorized: false } }, /rejectUnauthorized/);
    await refuse({ options: "-c search_path=app" }, /ALTER ROLE/);
    await refuse({ password: () => "secret" }, /function for its password/);
    await refuse(
      { connectionString: "postgres://app@db/shop?sslmode=no-verify" },
      /rejectUnauthor/,
    );
  });
});

test("a client without settings is refused, with what to hand in", async () => {
  const single = { connect: () => {}, query: () => {} };
  await expect(openPostgres(single)).rejects.toThrow("hand in a Pool of the package pg");
  const other = { getConnection: () => {}, query: () => {} };
  await expect(openMysql(other)).rejects.toThrow("hand in what createPool of mysql2 returns");
});

describe("a client of etcd3", () => {
  test("gives a store its settings, and is neither used nor closed", async () => {
    const [server] = inject("etcdServers");
    if (!server) throw new Error("no etcd is running");
    const client = new Etcd3({ hosts: [...server.endpoints] });
    const prefix = anyPrefix();
    const store = await openEtcd(client, { prefix });
    const lock = await store.locks.lock("a", OPTIONS);
    expect(await client.getAll().prefix(`${prefix}a/`).keys()).toHaveLength(1);
    await lock.unlock();
    await store.close();
    expect(await client.getAll().prefix(`${prefix}a/`).keys()).toEqual([]);
    client.close();
  });
});
