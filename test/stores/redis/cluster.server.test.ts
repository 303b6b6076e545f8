import { createCluster } from "@redis/client";
import { Cluster } from "ioredis";
import { Cluster as Cluster5 } from "ioredis-5";
import { createCluster as createCluster5 } from "redis-client-5";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { stockLock } from "../../../core/inventory/inventory.ts";
import type { ServerAddress } from "../../../core/stores/redis/client/connection.ts";
import { ownKey } from "../../../core/stores/redis/client/names.ts";
import { openRedis } from "../../../core/stores/redis/index.ts";
import { type RedisStore, redisStore } from "../../../core/stores/redis/store.ts";
import { open } from "../../../infra/open.ts";
import type { ServerNode } from "../../../infra/servers/server.ts";
import { describeElections } from "../../conformance/elections.ts";
import { describeInventory } from "../../conformance/inventory.ts";
import { describeLockStore } from "../../conformance/lock-store.ts";
import { known } from "../../support/known.ts";
import { EVERY_VERSION } from "../../support/matrix.ts";
import { RedisCluster } from "../../support/redis-group.ts";
import { anyPrefix } from "../../support/redis-under-test.ts";
import { until } from "../../support/until.ts";

const HOLD = { ttl: "60s", wait: "60s" } as const;

let cluster: RedisCluster;
beforeAll(async () => {
  cluster = await RedisCluster.start();
});
afterAll(() => cluster?.[Symbol.asyncDispose]());

type ClusterClient =
  | Cluster
  | Cluster5
  | ReturnType<typeof createCluster>
  | ReturnType<typeof createCluster5>;

/** A client with them is connected, and has no connection to a master before the first command. */
function fewConnections(nodes: readonly ServerAddress[]) {
  return { rootNodes: nodes.map((socket) => ({ socket })), minimizeConnections: true };
}

describe("a store in a Redis Cluster", () => {
  test("finds the node of its prefix by way of any node", async () => {
    for (const prefix of await cluster.prefixesOfAllMasters()) {
      for (const { config } of cluster.nodes) {
        const url = `redis+cluster://127.0.0.1:${config.port}?prefix=${prefix}`;
        await using store = await open(url);
        await store.inventory.set({ sku: "cup", quantity: 1, operationId: url });
        const locks = await store.locks.lockAll(["a", "b"], HOLD);
        expect((await store.locks.list("")).map(({ name }) => name)).toEqual(["a", "b"]);
        await locks.unlock();
        expect(await store.inventory.get("cup")).toMatchObject({ onHand: 1 });
      }
    }
  });

  test.each([
    ["ioredis 6", (nodes) => new Cluster([...nodes], { lazyConnect: true })],
    ["ioredis 5", (nodes) => new Cluster5([...nodes])],
    ["redis 6", (nodes) => createCluster({ rootNodes: nodes.map((socket) => ({ socket })) })],
    ["redis 5", (nodes) => createCluster5({ rootNodes: nodes.map((socket) => ({ socket })) })],
    ["redis 6, with few connections", (nodes) => createCluster(fewConnections(nodes))],
    ["redis 5, with few connections", (nodes) => createCluster5(fewConnections(nodes))],
  ] satisfies [string, (nodes: readonly ServerAddress[]) => ClusterClient][])(
    "has the nodes and the settings of a cluster's client of %s",
    async (_, make) => {
      const [node] = cluster.nodes.map(({ config: { port } }) => ({ host: "127.0.0.1", port }));
      const client: ClusterClient = make(node ? [node] : []);
      if (!("isCluster" in client)) await client.connect();
      for (const prefix of await cluster.prefixesOfAllMasters()) {
        await using store = await openRedis(client, { prefix });
        const lock = await store.locks.lock("a", HOLD);
        expect(await lock.unlock()).toBe("released");
      }
      expect(await (client as Cluster).set("a", "1")).toBe("OK");
      await client.disconnect();
    },
  );

  test("spreads locks and stock over the nodes, each sku with its lock, and refuses what spans several", async () => {
    const source = {
      cluster: cluster.nodes.map(({ config: { port } }) => ({ host: "127.0.0.1", port })),
    };
    const prefix = anyPrefix();
    await using store = await openRedis(source, { prefix, partitions: 16 });
    await using other = await openRedis(source, { prefix, partitions: 16 });
    const skus = ["cup", "jug", "pan", "pot", "urn", "vat"];
    for (const sku of skus) {
      await store.inventory.set({ sku, quantity: 2, operationId: `set-${sku}` });
      const late = await store.locks.lock(stockLock(sku), HOLD);
      await late.unlock();
      const lock = await other.locks.lock(stockLock(sku), HOLD);
      await other.inventory.claim(lock.fence);
      const sale = { sku, quantity: 1, operationId: `sale-${sku}` };
      const selling = store.inventory.decrement({ ...sale, fence: late.fence });
      await expect(selling).rejects.toMatchObject({ code: "FENCED_OUT" });
      expect(await other.inventory.decrement({ ...sale, fence: lock.fence })).toMatchObject({
        remaining: 1,
      });
      expect((await store.locks.list()).map(({ name }) => name)).toEqual([stockLock(sku)]);
      await lock.unlock();
    }
    const pages = [
      await store.inventory.list({ limit: 4 }),
      await store.inventory.list({ after: "pot" }),
    ];
    expect(pages.flat().map(({ sku }) => sku)).toEqual(skus);
    const masters = cluster.nodes.map(async (node) => {
      const found = (await cluster.tell(node, "KEYS", `{${prefix}/*}stock:*`)) as readonly string[];
      return found.length > 0 && String(await cluster.tell(node, "ROLE")).startsWith("master");
    });
    expect((await Promise.all(masters)).filter(Boolean).length).toBeGreaterThan(1);

    const all = skus.map(stockLock);
    await expect(store.locks.lockAll(all, HOLD)).rejects.toThrow(/several partitions/);
    const both = await store.locks.lockAll(["{order-7}/a", "{order-7}/b"], HOLD);
    const waiting = other.locks.lock("{order-7}/a", HOLD);
    await until(async () => (await store.locks.inspect("{order-7}/a")).waiters === 1);
    await both.unlock();
    await (await waiting).unlock();

    const generation = await store.locks.raiseGeneration();
    for (const sku of skus) {
      const lock = await other.locks.lock(stockLock(sku), HOLD);
      expect(lock.fence.generation).toBe(generation);
      await lock.unlock();
    }
  });

  test("keeps its locks, its queue and its fences in a failover that loses nothing", async () => {
    const prefix = anyPrefix();
    const [holder, other] = [cluster.store({ prefix }), cluster.store({ prefix })];
    const held = await holder.locks.lock("a", HOLD);
    const waiting = other.locks.lock("a", HOLD);
    await until(async () => (await holder.locks.inspect("a")).waiters === 1);
    await cluster.failOver(prefix);
    expect(await held.unlock()).toBe("released");
    const next = await waiting;
    expect(String(next.fence) > String(held.fence)).toBe(true);
    expect(await next.unlock()).toBe("released");
  });

  test("follows a slot that moves to another node while it is used", async () => {
    const prefix = anyPrefix();
    const store = cluster.store({ prefix });
    await store.inventory.set({ sku: "cup", quantity: 10, operationId: "set" });
    const held = await store.locks.lock("a", HOLD);
    const { from, target, slot, settle } = await beginMove(prefix);

    // The stock is at the new node already: the old one says ASK for a single key, and TRYAGAIN for a script.
    await move(from, target, [`{${prefix}}stock:cup`]);
    expect(await store.inventory.get("cup")).toMatchObject({ onHand: 10 });
    const selling = store.inventory.decrement({ sku: "cup", quantity: 1, operationId: "sale" });
    await until(async () =>
      /errorstat_TRYAGAIN:count=\d/.test(String(await cluster.tell(from, "INFO", "errorstats"))),
    );
    const keys = await cluster.tell(from, "CLUSTER", "GETKEYSINSLOT", slot, 1_000);
    await move(from, target, keys as readonly string[]);
    await settle();

    expect(await selling).toMatchObject({ outcome: "applied", remaining: 9, replayed: false });
    expect(await cluster.masterOf(prefix)).toBe(target);
    expect(await held.unlock()).toBe("released");
    const next = await store.locks.lock("a", HOLD);
    expect(String(next.fence) > String(held.fence)).toBe(true);
    await next.unlock();
  });

  test("lists all locks and skus after their slot has moved, and refuses a list while it has moved in part", async () => {
    const prefix = anyPrefix();
    const store = cluster.store({ prefix });
    for (const sku of ["cup", "jug"]) {
      await store.inventory.set({ sku, quantity: 1, operationId: `set-${sku}` });
      await store.locks.lock(stockLock(sku), HOLD);
    }
    const hasAll = async (page: RedisStore) => {
      const skus = (await page.inventory.list()).map(({ sku }) => sku);
      const names = (await page.locks.list()).map(({ name }) => name);
      return [skus.join(), names.join()].join(" ") === "cup,jug sku/cup,sku/jug";
    };
    // Clients that do nothing but list.
    const [page, patient] = [cluster.store({ prefix }), cluster.store({ prefix })];
    const hasty = redisStore(cluster.client(prefix, new Map(), 2_000), { prefix });
    // On a busy machine, an answer may come too late for the hasty one.
    for (const each of [page, patient, hasty]) expect(await known(() => hasAll(each))).toBe(true);
    const { from, target, slot, settle } = await beginMove(prefix);
    await move(from, target, [`{${prefix}}stock:cup`, `{${prefix}}lock:sku/cup`]);
    const refused = { code: "STORE_UNAVAILABLE" };
    await expect(hasty.inventory.list()).rejects.toMatchObject(refused);
    await expect(hasty.locks.list()).rejects.toMatchObject(refused);
    const listing = hasAll(patient);
    const keys = await cluster.tell(from, "CLUSTER", "GETKEYSINSLOT", slot, 1_000);
    await move(from, target, keys as readonly string[]);
    await settle();
    expect(await listing).toBe(true);
    for (const each of [page, hasty]) expect(await known(() => hasAll(each))).toBe(true);
    await hasty.locks.close();
  });

  test("survives the death of a master, and applies each sale once", async () => {
    const prefix = anyPrefix();
    const store = cluster.store({ prefix, replicas: 1 });
    await known(() => store.inventory.set({ sku: "cup", quantity: 10, operationId: "set" }));
    const held = await store.locks.lock("a", HOLD);
    const waiting = cluster.store({ prefix }).locks.lock("a", HOLD);
    await until(async () => (await store.locks.inspect("a")).waiters === 1);
    const master = await cluster.masterOf(prefix);
    await master.kill("SIGKILL");
    for (const operationId of ["1", "2"]) {
      const sale = { sku: "cup", quantity: 1, operationId };
      const sell = () => cluster.store({ prefix }).inventory.decrement(sale);
      expect(await known(sell)).toMatchObject({ outcome: "applied" });
    }
    expect(await store.inventory.get("cup")).toMatchObject({ onHand: 8, sold: 2 });
    expect(await held.unlock()).toBe("released");
    expect(String((await waiting).fence) > String(held.fence)).toBe(true);
    await master.start();
  });
});

async function masterBesides(from: ServerNode): Promise<ServerNode> {
  for (const node of cluster.nodes) {
    if (node !== from && String(await cluster.tell(node, "ROLE")).startsWith("master")) return node;
  }
  throw new Error("there is no other master");
}

/** Begins to move the slot of a prefix to another master. No key has moved yet. */
async function beginMove(prefix: string) {
  const from = await cluster.masterOf(prefix);
  const target = await masterBesides(from);
  const slot = Number(await cluster.tell(from, "CLUSTER", "KEYSLOT", ownKey(prefix, "x")));
  const ids = await Promise.all(
    [from, target].map((each) => cluster.tell(each, "CLUSTER", "MYID")),
  );
  const [fromId, targetId] = ids.map(String) as [string, string];
  await cluster.tell(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromId);
  await cluster.tell(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", targetId);
  const settle = async () => {
    for (const node of [target, from])
      await cluster.tell(node, "CLUSTER", "SETSLOT", slot, "NODE", targetId);
  };
  return { from, target, slot, settle };
}

async function move(from: ServerNode, to: ServerNode, keys: readonly string[]): Promise<void> {
  const target = ["127.0.0.1", to.config.port, "", 0, 5_000] as const;
  if (keys.length > 0) await cluster.tell(from, "MIGRATE", ...target, "KEYS", ...keys);
}

if (EVERY_VERSION) {
  describeLockStore("redis in a cluster", () => cluster.underTest("redis"));
  describeElections("redis in a cluster", () => cluster.underTest("redis"));
  describeInventory("redis in a cluster", () => cluster.inventoryUnderTest());
}
