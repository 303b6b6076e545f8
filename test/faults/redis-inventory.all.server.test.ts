import { describe, expect, test } from "vitest";
import { type Inventory, type StockResult, stockLock } from "../../core/inventory/inventory.ts";
import { issueFence } from "../../core/lock/fence.ts";
import { redisInventory } from "../../core/stores/redis/inventory/index.ts";
import { open } from "../../infra/open.ts";
import { startServer } from "../../infra/servers/start.ts";
import { OwnRedis } from "../support/own-redis.ts";
import { anyPrefix, openLocal, redisServer, wireToRedis } from "../support/redis-under-test.ts";
import { runScript } from "../support/script.ts";
import { sellThroughKills } from "../support/sell-through-kills.ts";
import type { TcpProxy } from "../support/tcp-proxy.ts";
import { pause, within } from "../support/until.ts";

const sku = "a";

const KEPT = ["--appendonly", "yes", "--appendfsync", "always"];

/** One change of each kind. A repeated change returns the same result. */
const CHANGES: readonly ((stock: Inventory) => Promise<StockResult | readonly object[]>)[] = [
  (stock) => stock.set({ ...named("1"), quantity: 10 }),
  (stock) => stock.restock({ ...named("2"), quantity: 5 }),
  (stock) => stock.decrement({ ...named("3"), quantity: 3 }),
  (stock) => stock.reserve({ ...named("4"), quantity: 4, expiresIn: 60_000 }),
  (stock) => stock.reserve({ ...named("5"), quantity: 1, expiresIn: 60_000 }),
  (stock) => stock.confirm({ ...named("6"), reservation: "4" }),
  (stock) => stock.cancel({ ...named("7"), reservation: "5" }),
  (stock) => stock.decrement({ ...named("8"), quantity: 9 }),
  (stock) =>
    stock.decrementMany({
      sku,
      orders: ["9", "10"].map((id) => ({ operationId: id, quantity: 1 })),
    }),
];

const REMAINING = [10, 15, 12, 8, 7, 7, 8, 8, 6];
const AFTER = { sku, onHand: 6, reserved: 0, sold: 9, supplied: 15 };

function named(operationId: string) {
  return { sku, operationId };
}

function remainingOf(answer: StockResult | readonly object[]) {
  const last = "outcome" in answer ? answer : (answer.at(-1) as StockResult);
  return { remaining: last.remaining, replayed: last.replayed };
}

describe.concurrent("a change of stock in Redis", () => {
  test("is written again by its repetition, as is a claim: WAIT counts replicas for what a connection has written", async () => {
    await using own = await OwnRedis.start();
    const stock = redisInventory(own.client());
    const fence = issueFence(stockLock(sku), 0, 7n, "holder");
    const changes = async () =>
      Number(/changes_since_last_save:(\d+)/.exec(String(await own.admin.call(["INFO"])))?.[1]);
    await stock.set({ ...named("1"), quantity: 10 });
    await stock.claim(fence);
    for (const again of [
      () => stock.set({ ...named("1"), quantity: 10 }),
      () => stock.claim(fence),
    ]) {
      const before = await changes();
      await again();
      expect(await changes()).toBeGreaterThan(before);
    }
    expect(await stock.history(sku)).toHaveLength(1);
  });

  test("a change that fails half way for lack of a permission has an unknown outcome and is not repeated", async () => {
    await using admin = openLocal();
    const prefix = anyPrefix();
    const rules = ["on", ">word", "~*", "&*", "+@all", "-mset"];
    await admin.call(["ACL", "SETUSER", prefix, ...rules]);
    await using redis = openLocal({ user: prefix, password: "word" });
    await redisInventory(admin, { prefix }).set({ ...named("1"), quantity: 10 });
    const selling = redisInventory(redis, { prefix }).decrement({ ...named("2"), quantity: 1 });
    await expect(selling).rejects.toMatchObject({
      code: "UNKNOWN_OUTCOME",
      cause: { message: expect.stringMatching(/user/i) },
    });
    expect(await redisInventory(admin, { prefix }).get(sku)).toMatchObject({ onHand: 9 });
    await admin.call(["ACL", "DELUSER", prefix]);
  });

  test("a change over a silently dead connection is applied once, and soon", async () => {
    await using wire = await wireToRedis();
    await using redis = openLocal({ port: wire.port });
    const stock = redisInventory(redis, { prefix: anyPrefix() });
    await stock.set({ ...named("1"), quantity: 10 });
    for (const order of ["2", "3", "4"]) {
      wire.blackhole();
      const selling = stock.decrement({ ...named(order), quantity: 1 });
      expect(await within(8_000, selling)).toMatchObject({ outcome: "applied" });
    }
    expect(await stock.get(sku)).toMatchObject({ onHand: 7 });
  });

  test.each([
    ["answer", (wire: TcpProxy) => wire.loseNextAnswer(), true],
    ["request", (wire: TcpProxy) => wire.loseNextRequest(), false],
  ] as const)("a change is applied once, whichever %s is lost", async (_, lose, replayed) => {
    await using wire = await wireToRedis();
    await using redis = openLocal({ port: wire.port });
    const prefix = anyPrefix();
    const stock = redisInventory(redis, { prefix });
    // The server knows the scripts, so that the proxy loses the change itself, not the loading of a script.
    await redisInventory(redis, { prefix: anyPrefix() }).set({ ...named("0"), quantity: 1 });
    await stock.expire(sku);
    for (const [i, change] of CHANGES.entries()) {
      await redis.call(["PING"]);
      lose(wire);
      expect(remainingOf(await change(stock))).toEqual({ remaining: REMAINING[i], replayed });
    }
    await using locks = await open(`${redisServer("redis").url}?prefix=${prefix}`);
    const { fence } = await locks.locks.lock(stockLock(sku), { ttl: 10_000, wait: 0 });
    for (const write of [() => stock.claim(fence), () => stock.expire(sku)]) {
      lose(wire);
      await write();
    }
    expect(wire.connections).toBeGreaterThan(CHANGES.length);
    expect(await stock.get(sku)).toEqual(AFTER);
    expect(await stock.history(sku)).toHaveLength(10);
    for (const read of [() => stock.get(sku), () => stock.history(sku)]) {
      await redis.call(["PING"]);
      lose(wire);
      await expect(read()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE", retryable: true });
    }
  });

  test("an aborted change has an unknown outcome, and a second call with its id tells the outcome", async () => {
    await using wire = await wireToRedis();
    await using redis = openLocal({ port: wire.port });
    const stock = redisInventory(redis, { prefix: anyPrefix() });
    await stock.set({ ...named("1"), quantity: 5 });
    for (const kind of ["decrement", "restock"] as const) {
      const patience = new AbortController();
      wire.cut();
      const given = stock[kind]({ ...named(kind), quantity: 2, signal: patience.signal });
      await pause(50);
      patience.abort(new Error("enough"));
      await expect(given).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
      wire.mend();
      const answer = await stock[kind]({ ...named(kind), quantity: 2 });
      expect(answer).toMatchObject({ outcome: "applied" });
    }
    expect(await stock.get(sku)).toMatchObject({ onHand: 5, sold: 2, supplied: 7 });
  });

  test("results survive a restart, and a server without the scripts still applies changes", async () => {
    await using server = await startServer("redis", { args: KEPT });
    const [node] = server.nodes;
    await using redis = openLocal({ port: Number(new URL(server.url).port) });
    const stock = redisInventory(redis);
    const answers: (StockResult | readonly object[])[] = [];
    for (const change of CHANGES) {
      await redis.call(["SCRIPT", "FLUSH"]);
      answers.push(await change(stock));
    }
    expect(answers.map((answer) => remainingOf(answer).remaining)).toEqual(REMAINING);
    await node?.kill("SIGKILL");
    const never = stock.restock({ ...named("never"), quantity: 1 });
    await expect(never).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    await node?.start();
    for (const [i, change] of CHANGES.entries()) {
      expect(remainingOf(await change(stock))).toEqual({ remaining: REMAINING[i], replayed: true });
    }
    expect(await stock.get(sku)).toEqual(AFTER);
    expect(await stock.history(sku)).toHaveLength(10);
  });

  test("a holder that was stopped for longer than its ttl is refused", async () => {
    const url = `${redisServer("redis").url}?prefix=${anyPrefix()}`;
    await using opened = await open(url);
    const { locks, inventory } = opened;
    await inventory.set({ ...named("set"), quantity: 5 });
    using holder = runScript("sell-late", url, sku);
    expect(await holder.line()).toBe("locked");
    const { fence } = await locks.lock(stockLock(sku), { ttl: 20_000, wait: 20_000 });
    const change = { ...named("next"), quantity: 1, fence };
    expect(await inventory.decrement(change)).toMatchObject({ outcome: "applied" });
    holder.child.kill("SIGCONT");
    expect(await holder.line()).toBe("FENCED_OUT");
    expect(await holder.ended).toBe(0);
    expect(await inventory.get(sku)).toMatchObject({ onHand: 4, sold: 1 });
  });
});

// Not concurrent with the other tests: it uses all of this process's time.
describe("a decrement in Redis", () => {
  test("a decrement that a server with appendfsync always acknowledged is in the ledger once after a kill", async () => {
    await using server = await startServer("redis", { args: KEPT });
    const port = Number(new URL(server.url).port);
    const clients = Array.from({ length: 32 }, () => openLocal({ port }));
    const stocks = clients.map((redis) => redisInventory(redis)) as [Inventory, ...Inventory[]];
    await sellThroughKills(server, stocks);
    for (const redis of clients) await redis.close();
  });
});
