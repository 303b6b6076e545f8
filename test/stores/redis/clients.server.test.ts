import { createClient, createClientPool, createCluster, createSentinel } from "@redis/client";
import { Redis } from "ioredis";
import { Redis as Redis5 } from "ioredis-5";
import { createClient as createClient5 } from "redis-client-5";
import { describe, expect, test } from "vitest";
import { stockLock } from "../../../core/inventory/inventory.ts";
import { type RedisSource, redisClient } from "../../../core/stores/redis/client/open.ts";
import { script } from "../../../core/stores/redis/client/redis.ts";
import { openRedis } from "../../../core/stores/redis/index.ts";
import { openRedlock } from "../../../core/stores/redlock/index.ts";
import { anyPrefix, openLocal, redisServer, wireToRedis } from "../../support/redis-under-test.ts";
import { until, within } from "../../support/until.ts";

const HOLD = { ttl: "60s", wait: "60s" } as const;
const COUNT = script("return redis.call('INCR', KEYS[1])");

interface Client {
  /** Returns a client for database 1. */
  readonly make: (port: number) => RedisSource;
  readonly name: string;
}

const CLIENTS: readonly Client[] = [
  { name: "ioredis 6", make: (port) => new Redis({ port, db: 1, lazyConnect: true }) },
  { name: "ioredis 5", make: (port) => new Redis5({ port, db: 1, lazyConnect: true }) },
  { name: "redis 6", make: (port) => createClient({ url: `redis://127.0.0.1:${port}/1` }) },
  { name: "redis 5", make: (port) => createClient5({ url: `redis://127.0.0.1:${port}/1` }) },
];

describe.concurrent.each(CLIENTS)("a client of $name that is handed in", ({ make }) => {
  const [port = 0] = redisServer("redis").ports;

  test("gives its settings to locks and stock, and stays its owner's", async () => {
    const prefix = anyPrefix();
    const store = await openRedis(make(port), { prefix });
    await store.inventory.set({ sku: "cup", quantity: 2, operationId: "set" });
    const held = await store.locks.lock(stockLock("cup"), HOLD);
    const sale = { sku: "cup", quantity: 1, operationId: "sale", fence: held.fence };
    expect(await store.inventory.decrement(sale)).toMatchObject({ remaining: 1 });
    expect(await held.unlock()).toBe("released");
    await using other = openLocal({ database: 1 });
    expect(await other.call(["EXISTS", `{${prefix}}stock:cup`], { reads: true })).toBe("1");
    await store.close();
  });

  test("hears messages, also after its connection was cut", async () => {
    await using wire = await wireToRedis();
    await using redis = redisClient(make(wire.port));
    await using other = openLocal();
    const channel = anyPrefix();
    const heard: string[] = [];
    let ready = 0;
    redis.subscribe(channel, {
      ready: () => (ready += 1),
      message: (text) => heard.push(text),
    });
    await until(() => ready === 1);
    await other.call(["PUBLISH", channel, "a"]);
    await until(() => heard.length === 1);
    wire.blackhole();
    await until(() => ready === 2);
    await other.call(["PUBLISH", channel, "b"]);
    await until(() => heard.length === 2);
    expect(heard).toEqual(["a", "b"]);
  });

  test("has one connection for all channels, and follows their coming and going", async () => {
    await using wire = await wireToRedis();
    // On a busy machine, an answer after two seconds would be reason for another connection.
    const patient = Object.assign(make(wire.port), { timeout: 60_000 });
    await using redis = redisClient(patient);
    await using other = openLocal();
    const [a, b] = [anyPrefix(), anyPrefix()];
    const heard: string[] = [];
    const listen = async (channel: string, name: string) => {
      const { promise, resolve } = Promise.withResolvers<void>();
      const message = (text: string) => heard.push(`${name}: ${text}`);
      const stop = redis.subscribe(channel, { ready: resolve, message });
      await promise;
      return stop;
    };
    const publish = async (text: string) => {
      for (const channel of [a, b]) await other.call(["PUBLISH", channel, text]);
    };
    // Not by a message, which may arrive after the next subscriber has come.
    const untilLeft = (channel: string) =>
      until(async () => {
        const [, listeners] = (await other.call(["PUBSUB", "NUMSUB", channel])) as string[];
        return listeners === "0";
      });
    const stops = [await listen(a, "a"), ...(await Promise.all([listen(b, "b"), listen(b, "c")]))];
    await publish("1");
    await until(() => heard.length === 3);
    stops[1]?.();
    await publish("2");
    await until(() => heard.length === 5);
    stops[2]?.();
    await untilLeft(b);
    stops.push(await listen(b, "d"));
    await publish("3");
    await until(() => heard.length === 7);
    expect(heard.sort()).toEqual(["a: 1", "a: 2", "a: 3", "b: 1", "c: 1", "c: 2", "d: 3"]);
    expect(wire.connections).toBe(1);
    for (const stop of stops) stop();
    await untilLeft(a);
    await listen(a, "e");
    expect(wire.connections).toBe(2);
  });

  test("keeps integers of 64 bits, and shows the errors of the server", async () => {
    await using redis = redisClient(make(port));
    const keys = [anyPrefix()];
    await redis.call(["SET", ...keys, "9223372036854775806"]);
    expect(await redis.call(["INCR", ...keys])).toBe("9223372036854775807");
    const refused = { code: "STORE_REFUSED" };
    await expect(redis.run(COUNT, { keys })).rejects.toMatchObject(refused);
    await expect(redis.call(["NO-SUCH-COMMAND"])).rejects.toMatchObject(refused);
    expect(await redis.call(["GET", `${keys}none`])).toBeUndefined();
    await redis.call(["DEL", ...keys]);
  });

  test("sends no command twice: a lost answer is an unknown outcome", async () => {
    await using wire = await wireToRedis();
    await using redis = redisClient(make(wire.port));
    const keys = [anyPrefix()];
    await redis.run(COUNT, { keys });
    for (const lose of [() => wire.loseNextAnswer(), () => wire.blackhole()]) {
      lose();
      const late = within(20_000, redis.run(COUNT, { keys }));
      await expect(late).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
      await until(() => redis.call(["PING"]).catch(() => undefined));
    }
    expect(await redis.call(["GET", ...keys], { reads: true })).toBe("2");
  });
});

test("clients on Unix sockets have their own addresses, and are different masters", async () => {
  const [one, other] = ["/run/a.sock", "/run/b.sock"];
  const clients = [
    new Redis({ path: one, lazyConnect: true }),
    createClient({ socket: { path: other, tls: false } }),
  ];
  const addresses = clients.map((client) => redisClient(client).address);
  expect(addresses).toEqual([`redis at ${one}`, `redis at ${other}`]);
  await using store = await openRedlock([...clients, { host: "c" }]);
  expect(store.locks.traits.shared).toBe(true);
});

test("clients that check no certificate, pools, and those of createSentinel, are refused", async () => {
  const socket = { host: "127.0.0.1", tls: true, rejectUnauthorized: false } as const;
  await expect(openRedis(createClient({ socket }))).rejects.toThrow(/rejectUnauthorized/);
  const cluster = createCluster({ rootNodes: [], defaults: { socket } });
  await expect(openRedis(cluster)).rejects.toThrow(/rejectUnauthorized/);
  const sentinel = createSentinel({ name: "shop", sentinelRootNodes: [{ host: "h", port: 1 }] });
  await expect(openRedis(sentinel)).rejects.toThrow(/createSentinel/);
  await expect(openRedis(createClientPool())).rejects.toThrow(/createClientPool/);
});
