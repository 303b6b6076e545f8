import { stockLock } from "lockstep/inventory";
import { openMemory } from "lockstep/memory";
import { openSqlite } from "lockstep/sqlite";
import { workflow } from "lockstep/steps";
import { createTestRuntime, withFaults } from "lockstep/testing";
import { afterEach, expect, test, vi } from "vitest";
import { z } from "zod";

const options = { ttl: "10s", wait: "5s" } as const;

afterEach(() => vi.useRealTimers());

test("a lock that is not renewed is lost after its ttl", async () => {
  vi.useFakeTimers();
  const { locks } = await openMemory();
  const late = await locks.lock("report", { ...options, renew: false });
  expect(await locks.tryLock("report", options)).toBeUndefined();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(late.signal.aborted).toBe(true);
  const next = await locks.lock("report", options);
  expect(next.fence.token).toBeGreaterThan(late.fence.token);
});

test("the stock refuses a holder after the next one has sold", async () => {
  await using shop = await openSqlite(":memory:");
  await shop.inventory.set({ sku: "cup", quantity: 5, operationId: "count-1" });
  const late = await shop.locks.lock(stockLock("cup"), options);
  await late.unlock();
  const next = await shop.locks.lock(stockLock("cup"), options);
  const sale = { sku: "cup", quantity: 1 };
  await shop.inventory.decrement({ ...sale, operationId: "order-2", fence: next.fence });
  const refused = shop.inventory.decrement({ ...sale, operationId: "order-1", fence: late.fence });
  await expect(refused).rejects.toMatchObject({ code: "FENCED_OUT" });
  expect(await shop.inventory.get("cup")).toMatchObject({ onHand: 4 });
});

test("a step that fails twice is tried a third time, with the same key", async () => {
  const keys: string[] = [];
  const pay = workflow({ name: "pay", version: 1, input: z.null() }, (ctx) =>
    ctx.step("charge", async () => "paid"),
  );
  const flaky = withFaults(pay, {
    charge({ idempotencyKey }) {
      keys.push(idempotencyKey);
      if (keys.length < 3) throw new Error("the provider is down");
    },
  });
  const { journal } = await openMemory();
  const outcome = await createTestRuntime({ journal }).run(flaky, null, { id: "payment-1" });
  expect(outcome).toMatchObject({ status: "completed", output: "paid" });
  expect(keys).toEqual([keys[0], keys[0], keys[0]]);
});
