import { describe, expect, test } from "vitest";
import type { Inventory } from "../../core/inventory/inventory.ts";
import { stockLock } from "../../core/inventory/inventory.ts";
import { StoreUnavailableError } from "../../core/lock/errors.ts";
import { type Fence, FencedOutError } from "../../core/lock/fence.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import { type SaleResult, stockHandler } from "../../functions/lambda/index.ts";
import type { StockHandlerOptions } from "../../functions/lambda/queue/stock-handler.ts";
import { eventOf, failed, recordHooks, within } from "../support/queue-handlers.ts";
import { pause } from "../support/until.ts";

describe.concurrent("a stock handler", () => {
  async function shop(options: StockHandlerOptions = {}, quantity = 10) {
    const database = sqliteDatabase(":memory:");
    await migrate(database);
    const inventory = sqlInventory(database);
    for (const sku of ["a", "b"]) await inventory.set({ sku, quantity, operationId: `set-${sku}` });
    const locks = memoryLocks();
    const recorded = recordHooks();
    const answers: SaleResult[] = [];
    const onAnswer = async (answer: SaleResult) => void answers.push(answer);
    const all = { ...recorded.options, onAnswer, reserve: 500, ...options };
    const batches: string[][] = [];
    const counting: Inventory = {
      ...inventory,
      decrementMany(batch) {
        batches.push(batch.orders.map(({ operationId }) => operationId));
        return inventory.decrementMany(batch);
      },
    };
    const handler = stockHandler({ inventory: counting, locks }, all);
    return { ...recorded, inventory, locks, handler, answers, batches, options: all };
  }
  const sales = (...ids: readonly string[]) =>
    ids.map((orderId) => ({ orderId, sku: orderId.slice(0, 1), quantity: 3 }));

  test("sells to all message groups of a FIFO queue, although they want the same sku", async () => {
    const { handler, inventory, events } = await shop({}, 100);
    const ids = Array.from({ length: 10 }, (_, i) => `a${i}`);
    const event = eventOf(sales(...ids), { fifo: true, groups: ids });
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    expect(events).toEqual([]);
    expect(await inventory.get("a")).toMatchObject({ sold: 30 });
  });

  test("begins no sale whose turn comes when too little time is left", async () => {
    const { inventory, locks, options } = await shop({}, 100);
    const slow: Inventory = {
      ...inventory,
      async decrementMany(batch) {
        await pause(1_800);
        return inventory.decrementMany(batch);
      },
    };
    const handler = stockHandler({ inventory: slow, locks }, options);
    const event = eventOf(sales("a1", "a2"), { fifo: true, groups: ["1", "2"] });
    expect(await failed(event, handler(event, within(3_000)))).toEqual([1]);
    expect(await locks.list()).toEqual([]);
    expect(await inventory.get("a")).toMatchObject({ sold: 3 });
  });

  test("sells to the orders of a batch for a sku in one transaction under one lock", async () => {
    const { handler, batches, answers, inventory, locks } = await shop();
    const event = eventOf(sales("a1", "b1", "a2", "a3", "a4", "b2"));
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    expect(batches.sort()).toEqual([
      ["a1", "a2", "a3", "a4"],
      ["b1", "b2"],
    ]);
    const told = Object.fromEntries(answers.map(({ orderId, outcome }) => [orderId, outcome]));
    expect(told).toEqual({
      a1: "applied",
      a2: "applied",
      a3: "applied",
      a4: "sold-out",
      b1: "applied",
      b2: "applied",
    });
    expect(await inventory.get("a")).toMatchObject({ onHand: 1, sold: 9 });
    expect(await locks.list()).toEqual([]);
  });

  test("sells each order once with one result, however often its message is delivered", async () => {
    const { handler, answers, inventory } = await shop();
    const event = eventOf(sales("a1", "a2", "a1", "a3"));
    for (let i = 0; i < 3; i += 1) {
      expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    }
    const distinct = new Set(
      answers.map(({ orderId, outcome, remaining }) => `${orderId} ${outcome} ${remaining}`),
    );
    expect([...distinct].sort()).toEqual(["a1 applied 7", "a2 applied 4", "a3 applied 1"]);
    expect(answers.filter(({ replayed }) => !replayed)).toHaveLength(3);
    expect(await inventory.get("a")).toMatchObject({ onHand: 1, sold: 9 });
  });

  test("retries an order whose result could not be reported, with the same result", async () => {
    let isAway = true;
    const told: SaleResult[] = [];
    const onAnswer = async (answer: SaleResult) => {
      if (isAway && answer.orderId === "a1") throw new Error("away");
      told.push(answer);
    };
    const { handler, poison } = await shop({ onAnswer });
    const event = eventOf(sales("a1", "a2"));
    expect(await failed(event, handler(event, within()))).toEqual([0]);
    isAway = false;
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    expect(told.filter(({ orderId }) => orderId === "a1")).toMatchObject([
      { remaining: 7, replayed: true },
    ]);
    expect(poison).toEqual([]);
  });

  test("an order with a hanging report does not delay the other orders", async () => {
    const onAnswer = ({ orderId }: SaleResult) =>
      orderId === "a1" ? new Promise(() => {}) : Promise.resolve();
    const { handler } = await shop({ onAnswer });
    const event = eventOf(sales("a1", "a2", "a3", "b1"));
    const context = within(5_000);
    expect(await failed(event, handler(event, context))).toEqual([0]);
    expect(context.getRemainingTimeInMillis()).toBeGreaterThan(0);
  });

  test("sells the largest batch, and bounds the concurrent reports", async () => {
    let [now, most] = [0, 0];
    const onAnswer = async () => {
      now += 1;
      most = Math.max(most, now);
      await pause(1);
      now -= 1;
    };
    const { handler, inventory } = await shop({ onAnswer }, 20_000);
    const all = Array.from({ length: 10_000 }, (_, i) => ({ orderId: `${i}`, sku: "a" }));
    expect(await handler(eventOf(all), within())).toEqual({ batchItemFailures: [] });
    expect(await inventory.get("a")).toMatchObject({ sold: 10_000 });
    expect(most).toBeGreaterThan(1);
    expect(most).toBeLessThanOrEqual(100);
  });

  test("on a FIFO queue, reports results in order, and none behind a failed report", async () => {
    const told: string[] = [];
    const onAnswer = async ({ orderId }: SaleResult) => {
      await pause(orderId === "a1" ? 20 : 0);
      told.push(orderId);
      if (orderId === "a2") throw new Error("away");
    };
    const { handler } = await shop({ onAnswer });
    const event = eventOf(sales("a1", "a2", "a3"), { fifo: true });
    expect(await failed(event, handler(event, within()))).toEqual([1, 2]);
    expect(told).toEqual(["a1", "a2"]);
  });

  test("delays a sku with a busy lock, and sells the others", async () => {
    const { handler, locks, delays, poison } = await shop();
    const held = await locks.lock(stockLock("a"), { ttl: 60_000, wait: 0 });
    const event = eventOf(sales("a1", "b1", "a2"));
    const context = within(600_000);
    expect(await failed(event, handler(event, context))).toEqual([0, 2]);
    // One attempt: the function is not paid for waiting.
    expect(context.getRemainingTimeInMillis()).toBeGreaterThan(500_000);
    expect(delays).toEqual([{ orders: ["a1", "a2"], seconds: 1 }]);
    expect(poison).toEqual([]);
    await held.unlock();
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
  });

  test("waits for a busy lock when asked for", async () => {
    const { handler, locks } = await shop({ wait: "10s" });
    const held = await locks.lock(stockLock("a"), { ttl: 60_000, wait: 0 });
    setTimeout(() => held.unlock(), 50);
    expect(await handler(eventOf(sales("a1")), within())).toEqual({ batchItemFailures: [] });
  });

  test("a late holder tries again under a new lock", async () => {
    const { inventory, locks, options } = await shop();
    let late = 1;
    const stock: Inventory = {
      ...inventory,
      async decrementMany(batch) {
        if (late-- > 0 && batch.fence) throw new FencedOutError(batch.fence, "0.9");
        return inventory.decrementMany(batch);
      },
    };
    const handler = stockHandler({ inventory: stock, locks }, options);
    expect(await handler(eventOf(sales("a1")), within())).toEqual({ batchItemFailures: [] });
  });

  test("an order whose holder is late again comes back as under contention", async () => {
    const { inventory, locks, options, events } = await shop();
    const stock: Inventory = {
      ...inventory,
      async decrementMany({ fence }) {
        throw new FencedOutError(fence as Fence, "0.9");
      },
    };
    const handler = stockHandler({ inventory: stock, locks }, options);
    const event = eventOf(sales("a1"));
    expect(await failed(event, handler(event, within()))).toEqual([0]);
    expect(events).toMatchObject([{ type: "retry", reason: "busy" }]);
  });

  test("invalid orders and orders that can never succeed are poison", async () => {
    const { handler, codes, answers } = await shop();
    const event = eventOf([
      "{",
      "null",
      { orderId: "x", sku: "a", quantity: 1.5 },
      { orderId: "y", sku: "a", quantity: "1" },
      { orderId: 7, sku: "a" },
      { orderId: "z", sku: "none", quantity: 1 },
      { orderId: "a1", sku: "a", quantity: 1 },
    ]);
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    expect(codes().filter(Boolean).sort()).toEqual([
      "INVALID_MESSAGE",
      "INVALID_MESSAGE",
      "UNKNOWN_SKU",
    ]);
    expect(codes()).toHaveLength(6);
    const other = eventOf([{ orderId: "a1", sku: "a", quantity: 2 }]);
    expect(await handler(other, within())).toEqual({ batchItemFailures: [] });
    expect(codes().at(-1)).toBe("OPERATION_CONFLICT");
    expect(answers).toHaveLength(1);
  });

  test("retries messages when the store does not answer", async () => {
    const { inventory, locks, options, poison } = await shop();
    const decrementMany = () => Promise.reject(new StoreUnavailableError("here", "away"));
    const handler = stockHandler({ inventory: { ...inventory, decrementMany }, locks }, options);
    const event = eventOf(sales("a1", "a2"));
    expect(await failed(event, handler(event, within()))).toEqual([0, 1]);
    expect(poison).toEqual([]);
    expect(await locks.list()).toEqual([]);
  });

  test("on a FIFO queue, sells consecutive orders of a group in one transaction", async () => {
    const { handler, batches } = await shop();
    const event = eventOf(sales("a1", "a2", "b1", "a3"), { fifo: true });
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    expect(batches).toEqual([["a1", "a2"], ["b1"], ["a3"]]);
  });

  test("on a FIFO queue, retries the orders behind a retried order", async () => {
    const onAnswer = async ({ orderId }: SaleResult) => {
      if (orderId === "a2") throw new Error("away");
    };
    const { handler } = await shop({ onAnswer });
    const event = eventOf(sales("a1", "a2", "a3", "b1"), { fifo: true });
    expect(await failed(event, handler(event, within()))).toEqual([1, 2, 3]);
  });
});
