import { describe, expect, test } from "vitest";
import { stockLock } from "../../core/inventory/inventory.ts";
import { issueFence } from "../../core/lock/fence.ts";
import { script } from "../../core/stores/redis/client/redis.ts";
import { stockKeys } from "../../core/stores/redis/inventory/change.ts";
import {
  type RedisInventoryOptions,
  redisInventory,
} from "../../core/stores/redis/inventory/index.ts";
import { open } from "../../infra/open.ts";
import { freePort } from "../../infra/servers/processes.ts";
import { startServer } from "../../infra/servers/start.ts";
import { describeInventory } from "../conformance/inventory.ts";
import { redisInventoryUnderTest } from "../support/inventory-under-test.ts";
import { anyPrefix, openLocal } from "../support/redis-under-test.ts";
import { pause, until } from "../support/until.ts";

describeInventory("redis", redisInventoryUnderTest);

const sku = "a";

/** Opens stock under a fresh prefix; returns it with its keys. */
function freshStock(options?: RedisInventoryOptions) {
  const prefix = anyPrefix();
  const redis = openLocal();
  const stock = redisInventory(redis, { ...options, prefix });
  return { redis, stock, keys: stockKeys(prefix), [Symbol.asyncDispose]: () => redis.close() };
}

function ordersOf(size: number, name = String(size)) {
  return Array.from({ length: size }, (_, i) => ({ operationId: `${name}/${i}`, quantity: 1 }));
}

describe("a change of stock in Redis", () => {
  test("every change is one script", async () => {
    await using server = await startServer("redis");
    await using redis = openLocal({ port: Number(new URL(server.url).port) });
    const stock = redisInventory(redis);
    const fence = issueFence(stockLock(sku), 0, 1n, "one");
    const change = (operationId: string) => ({ sku, quantity: 1, operationId, fence });
    await stock.set({ ...change("set"), quantity: 5_000 });
    await stock.claim(fence);
    await stock.expire(sku);
    const costs = async (call: () => Promise<unknown>) => {
      await redis.call(["CONFIG", "RESETSTAT"]);
      await call();
      const stats = String(await redis.call(["INFO", "commandstats"]));
      expect(stats).not.toMatch(/cmdstat_eval:/);
      return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1]);
    };
    expect(await costs(() => stock.claim(fence))).toBe(1);
    expect(await costs(() => stock.decrement(change("1")))).toBe(1);
    expect(await costs(() => stock.decrement(change("1")))).toBe(1);
    expect(await costs(() => stock.decrement({ ...change("2"), quantity: 5_000 }))).toBe(1);
    expect(await costs(() => stock.decrementMany({ sku, orders: ordersOf(1_000), fence }))).toBe(1);
    expect(await costs(() => stock.reserve({ ...change("r"), expiresIn: 1 }))).toBe(1);
    await pause(20);
    const all = { ...change("3"), quantity: 3_999 };
    expect(await costs(() => stock.decrement(all))).toBe(1);
    expect(await stock.get(sku)).toEqual({
      sku,
      onHand: 0,
      reserved: 0,
      sold: 5_000,
      supplied: 5_000,
    });
  });

  test("changes work on a cluster with any names of skus and operations", async () => {
    // The default bus port is the clients' port plus 10,000, which an outgoing connection may use.
    const bus = ["--cluster-port", String(await freePort())];
    await using server = await startServer("redis", { args: ["--cluster-enabled", "yes", ...bus] });
    await using redis = openLocal({ port: Number(new URL(server.url).port) });
    await redis.call(["CLUSTER", "ADDSLOTSRANGE", 0, 16_383]);
    const stock = redisInventory(redis);
    const serves = () => stock.get(sku).catch(({ code }) => expect(code).toBe("STORE_UNAVAILABLE"));
    while (await serves()) await pause(20);
    for (const name of ["a{b}c", "}{", "{x}"]) {
      const fence = issueFence(stockLock(name), 0, 1n, "one");
      const change = { sku: name, quantity: 2, fence };
      await stock.set({ ...change, operationId: `{${name}}/set` });
      await stock.reserve({ ...change, operationId: `{${name}}/r`, expiresIn: 60_000 });
      const closing = { ...change, reservation: `{${name}}/r` };
      expect(await stock.cancel({ ...closing, operationId: `{}${name}` })).toMatchObject({
        remaining: 2,
      });
      const orders = ordersOf(3, `{${name}`);
      const answers = await stock.decrementMany({ sku: name, orders, fence });
      expect(answers.map(({ outcome }) => outcome)).toEqual(["applied", "applied", "sold-out"]);
    }
  });

  test("units are exact up to 2^53", async () => {
    await using opened = freshStock();
    const { redis, stock, keys } = opened;
    await stock.set({ sku, quantity: 3, operationId: "1" });
    const most = Number.MAX_SAFE_INTEGER;
    const fields = ["onHand", most - 3, "sold", 1, "supplied", most - 2];
    await redis.call(["HSET", keys.stock(sku), ...fields]);
    const change = { sku, quantity: 2, operationId: "2" };
    expect(await stock.restock(change)).toMatchObject({ remaining: most - 1 });
    expect(await stock.get(sku)).toMatchObject({ onHand: most - 1, supplied: most });
    const selling = { sku, quantity: 1, operationId: "3" };
    expect(await stock.decrement(selling)).toMatchObject({ remaining: most - 2 });
    expect(await stock.decrement(selling)).toMatchObject({ remaining: most - 2, replayed: true });
    expect((await stock.history(sku)).map(({ remaining }) => remaining)).toEqual([
      most - 2,
      most - 1,
      3,
    ]);
  });

  test("thousands of expired reservations are released, in portions", async () => {
    await using opened = freshStock();
    const { redis, stock, keys } = opened;
    await stock.set({ sku, quantity: 1, operationId: "set" });
    const fill = script(`
      for i = 1, 5000 do redis.call('ZADD', KEYS[1], i > 4500 and '+inf' or i, '2 r' .. i) end
      redis.call('HSET', KEYS[2], 'reserved', 10000, 'supplied', 10001)
    `);
    await redis.run(fill, { keys: [keys.reservations(sku), keys.stock(sku)] });
    const selling = { sku, quantity: 4_002, operationId: "1" };
    expect(await stock.decrement(selling)).toEqual({
      outcome: "applied",
      remaining: 6_001 - 4_002,
      replayed: false,
    });
    const units = { reserved: 4_000, sold: 4_002, supplied: 10_001 };
    expect(await stock.get(sku)).toEqual({ sku, onHand: 1_999, ...units });
    await stock.expire(sku);
    expect(await stock.get(sku)).toMatchObject({ onHand: 4_999, reserved: 1_000 });
    const orders = [{ operationId: "2", quantity: 9_999 }, ...ordersOf(1)];
    const answers = await stock.decrementMany({ sku, orders });
    expect(answers.map(({ outcome }) => outcome)).toEqual(["sold-out", "applied"]);
    expect(await stock.history(sku, { limit: 10_000 })).toHaveLength(1 + 4_500 + 3);
  });
});

describe("a fence at stock in Redis", () => {
  test("the second of two owners with equal tokens is refused and changes nothing", async () => {
    await using opened = freshStock();
    const { stock } = opened;
    // A replica that was promoted without the last tokens issues them again.
    const [one, two] = ["one", "two"].map((owner) => issueFence(stockLock(sku), 0, 7n, owner));
    await stock.set({ sku, quantity: 9, operationId: "set" });
    const change = (operationId: string) => ({ sku, quantity: 1, operationId, fence: two });
    await stock.decrement({ ...change("1"), fence: one });
    const refused = { code: "FENCED_OUT", current: String(one) };
    if (!two) return;
    await expect(stock.decrement(change("2"))).rejects.toMatchObject(refused);
    await expect(stock.restock(change("2"))).rejects.toMatchObject(refused);
    await expect(stock.claim(two)).rejects.toMatchObject(refused);
    const batch = { sku, orders: ordersOf(2), fence: two };
    await expect(stock.decrementMany(batch)).rejects.toMatchObject(refused);
    expect(await stock.decrement(change("1"))).toMatchObject({ replayed: true });
    expect(await stock.decrement({ ...change("3"), fence: one })).toMatchObject({ remaining: 7 });
    expect(await stock.history(sku)).toHaveLength(3);
  });

  test("a fence of a later generation is later, however high the last token was", async () => {
    await using opened = freshStock();
    const { stock } = opened;
    const early = issueFence(stockLock(sku), 9, 2n ** 62n, "one");
    const late = issueFence(stockLock(sku), 10, 1n, "two");
    await stock.claim(early);
    await stock.claim(late);
    await expect(stock.claim(early)).rejects.toMatchObject({
      code: "FENCED_OUT",
      current: String(late),
    });
  });

  test("a fence with a token of 63 bits is below the next one", async () => {
    await using opened = freshStock();
    const { stock } = opened;
    const fences = [2n ** 62n, 2n ** 62n + 1n].map((token) =>
      issueFence(stockLock(sku), 0, token, "one"),
    );
    await stock.set({ sku, quantity: 9, operationId: "set" });
    for (const [i, fence] of fences.entries()) {
      await stock.decrement({ sku, quantity: 1, operationId: `${i}`, fence });
    }
    const [fence, current] = fences;
    await expect(
      stock.decrement({ sku, quantity: 1, operationId: "late", fence }),
    ).rejects.toMatchObject({ code: "FENCED_OUT", current: String(current) });
  });
});

describe("replicas of Redis that must confirm a change", () => {
  test("replicas that do not confirm in time leave the outcome unknown, for a second client too", async () => {
    await using server = await startServer("redis-replica");
    const [, replica] = server.nodes;
    const opened = await Promise.all([1, 2].map(() => open(`${server.url}?replicas=1`)));
    const [here, there] = opened.map(({ inventory }) => inventory);
    if (!here || !there) return;
    const unknown = { code: "UNKNOWN_OUTCOME", message: expect.stringContaining("1 replicas") };
    const setting = { sku, quantity: 9, operationId: "set" };
    await until(() => here.set(setting).catch(({ code }) => void expect(code).toBe(unknown.code)));
    const change = { sku, quantity: 1, operationId: "1" };
    await replica?.kill("SIGSTOP");
    await expect(here.decrement(change)).rejects.toMatchObject(unknown);
    await expect(there.decrement(change)).rejects.toMatchObject(unknown);
    const missing = { ...change, sku: "b", operationId: "2" };
    await expect(there.decrement(missing)).rejects.toMatchObject(unknown);
    await replica?.kill("SIGCONT");
    const decided = () =>
      there.decrement(change).catch(({ code }) => void expect(code).toBe(unknown.code));
    expect(await until(decided)).toEqual({ outcome: "applied", remaining: 8, replayed: true });
    for (const each of opened) await each.close();
  });

  test("the number of replicas is a whole number", async () => {
    await using redis = openLocal();
    expect(() => redisInventory(redis, { replicas: 1.5 })).toThrow(RangeError);
    expect(() => redisInventory(redis, { replicaTimeout: 0 })).toThrow(RangeError);
    expect(() => redisInventory(redis, { prefix: "{a}" })).toThrow(RangeError);
  });
});
