import { Redis } from "ioredis";
import { Redis as Redis5 } from "ioredis-5";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openRedis } from "../../../core/stores/redis/index.ts";
import { open } from "../../../infra/open.ts";
import { describeElections } from "../../conformance/elections.ts";
import { describeInventory } from "../../conformance/inventory.ts";
import { describeLockStore } from "../../conformance/lock-store.ts";
import { known } from "../../support/known.ts";
import { EVERY_VERSION } from "../../support/matrix.ts";
import { RedisSentinels } from "../../support/redis-group.ts";
import { anyPrefix } from "../../support/redis-under-test.ts";
import { until } from "../../support/until.ts";

const HOLD = { ttl: "60s", wait: "60s" } as const;

let group: RedisSentinels;
beforeAll(async () => {
  group = await RedisSentinels.start();
});
afterAll(() => group?.[Symbol.asyncDispose]());

describe("a store behind Redis Sentinel", () => {
  test("finds the master by way of any sentinel", async () => {
    const [first, ...rest] = group.sentinels.map(({ config }) => config.port);
    const prefix = anyPrefix();
    for (const hosts of [[first], ...rest.map((port) => [1, port])]) {
      const url = `redis+sentinel://${hosts.map((port) => `127.0.0.1:${port}`)}/lockstep?prefix=${prefix}`;
      await using store = await open(url);
      const lock = await store.locks.lock("a", HOLD);
      expect(await lock.unlock()).toBe("released");
    }
  });

  test.each([
    ["6", Redis],
    ["5", Redis5 as unknown as typeof Redis],
  ])("has the settings of a client of ioredis %s", async (_, Client) => {
    const sentinels = group.sentinels.map(({ config: { port } }) => ({ host: "127.0.0.1", port }));
    const client = new Client({ sentinels, name: "lockstep", db: 1 });
    const prefix = anyPrefix();
    const store = await openRedis(client, { prefix });
    const lock = await store.locks.lock("a", HOLD);
    expect(await client.exists(`{${prefix}}lock:a`)).toBe(1);
    expect(await lock.unlock()).toBe("released");
    await store.close();
    expect(await client.quit()).toBe("OK");
  });

  test("refuses a name that the sentinels do not know", async () => {
    const [sentinel] = group.sentinels;
    await using store = await open(`redis+sentinel://127.0.0.1:${sentinel?.config.port}/nobody`);
    await expect(store.locks.lock("a", HOLD)).rejects.toMatchObject({
      code: "STORE_REFUSED",
      message: expect.stringContaining('know no master "nobody"'),
    });
  });

  test("survives the death of the master, and applies each sale once", async () => {
    const prefix = anyPrefix();
    const store = group.store({ prefix, replicas: 1 });
    await known(() => store.inventory.set({ sku: "cup", quantity: 10, operationId: "set" }));
    const held = await store.locks.lock("a", HOLD);
    const waiting = group.store({ prefix }).locks.lock("a", HOLD);
    await until(async () => (await store.locks.inspect("a")).waiters === 1);
    const master = await group.masterOf(prefix);
    await master.kill("SIGKILL");
    for (const operationId of ["1", "2"]) {
      const sale = { sku: "cup", quantity: 1, operationId };
      const sell = () => group.store({ prefix }).inventory.decrement(sale);
      expect(await known(sell)).toMatchObject({ outcome: "applied" });
    }
    expect(await store.inventory.get("cup")).toMatchObject({ onHand: 8, sold: 2 });
    expect(await held.unlock()).toBe("released");
    const next = await waiting;
    expect(String(next.fence) > String(held.fence)).toBe(true);
    await next.unlock();
    await master.start();
  });

  test("leaves a master that was made a replica, with what a client has under way", async () => {
    const prefix = anyPrefix();
    const store = group.store({ prefix });
    const held = await until(() => store.locks.lock("a", HOLD).catch(() => undefined));
    await group.failOver(prefix);
    expect(await held.unlock()).toBe("released");
    const next = await store.locks.lock("a", HOLD);
    expect(String(next.fence) > String(held.fence)).toBe(true);
    await next.unlock();
  });
});

if (EVERY_VERSION) {
  describeLockStore("redis behind sentinels", () => group.underTest("redis"));
  describeElections("redis behind sentinels", () => group.underTest("redis"));
  describeInventory("redis behind sentinels", () => group.inventoryUnderTest());
}
