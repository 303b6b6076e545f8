import { expect, test } from "vitest";
import { type Database, type Sql, sql } from "../../core/database/sql.ts";
import { stockLock } from "../../core/inventory/inventory.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";

/** Stock on a database that takes batches alone, as a Durable Object does. */
async function stocked(sku: string, quantity: number, batch?: Database["batch"]) {
  const database = sqliteDatabase(":memory:");
  await migrate(database);
  const optimistic: Database = new Proxy(database, {
    get(target, key) {
      if (key === "dialect") return { ...target.dialect, isOptimistic: true };
      if (key === "batch" && batch) return batch.bind(target);
      if (key === "transaction") return () => Promise.reject(new Error("no transactions"));
      const value = Reflect.get(target, key);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  const inventory = sqlInventory(optimistic);
  await inventory.set({ sku, quantity, operationId: "set" });
  return inventory;
}

test("a batch tells of replays, of other changes under its ids, and of what is sold out", async () => {
  const inventory = await stocked("a", 5);
  const sold = { operationId: "1", quantity: 2 };
  await inventory.decrementMany({ sku: "a", orders: [sold] });
  const orders = [
    sold,
    { operationId: "1", quantity: 1 },
    { operationId: "2", quantity: 9 },
    { operationId: "3", quantity: 3 },
  ];
  expect(await inventory.decrementMany({ sku: "a", orders })).toEqual([
    { operationId: "1", outcome: "applied", remaining: 3, replayed: true },
    { operationId: "1", outcome: "conflict", remaining: 0, replayed: false },
    { operationId: "2", outcome: "sold-out", remaining: 3, replayed: false },
    { operationId: "3", outcome: "applied", remaining: 0, replayed: false },
  ]);
});

test("a batch of a late holder changes nothing", async () => {
  const inventory = await stocked("a", 5);
  await using locks = memoryLocks();
  const options = { ttl: 60_000, wait: 0 };
  const late = await locks.lock(stockLock("a"), options);
  await late.unlock();
  const next = await locks.lock(stockLock("a"), options);
  await inventory.claim(next.fence);
  const orders = [{ operationId: "1", quantity: 1 }];
  const selling = inventory.decrementMany({ sku: "a", orders, fence: late.fence });
  await expect(selling).rejects.toMatchObject({ code: "FENCED_OUT" });
  expect(await inventory.get("a")).toMatchObject({ onHand: 5, sold: 0 });
});

/** Runs a batch during which all reservations expire, once the expired ones are released. */
async function batchOfExpiries(this: Database, statements: readonly Sql[]) {
  const isRelease = ({ texts }: Sql) => texts.join().includes("DELETE FROM lockstep_reservation");
  const at = statements.findIndex(isRelease) + 1;
  const expire = sql`UPDATE lockstep_reservation SET expires_at = 1`;
  const between = at > 0 && statements.length > at ? [expire] : [];
  const results = await this.batch([
    ...statements.slice(0, at),
    ...between,
    ...statements.slice(at),
  ]);
  return results.toSpliced(at, between.length);
}

test("a reservation that expires during a batch splits it into no two transactions", async () => {
  const inventory = await stocked("a", 5, batchOfExpiries);
  await inventory.reserve({ sku: "a", quantity: 4, operationId: "held", expiresIn: "1h" });
  const orders = [
    { operationId: "1", quantity: 1 },
    { operationId: "2", quantity: 3 },
    { operationId: "3", quantity: 1 },
  ];
  expect(await inventory.decrementMany({ sku: "a", orders })).toEqual([
    { operationId: "1", outcome: "applied", remaining: 0, replayed: false },
    { operationId: "2", outcome: "sold-out", remaining: 0, replayed: false },
    { operationId: "3", outcome: "sold-out", remaining: 0, replayed: false },
  ]);
});

test("a sku whose lock could not be on every store is refused", async () => {
  const inventory = await stocked("a", 5);
  for (const sku of ["%lockstep", "x/%lockstep", "%lockstep/y"]) {
    const set = inventory.set({ sku, quantity: 1, operationId: "odd" });
    await expect(set).rejects.toThrow(`sku "${sku}" must not have a segment "%lockstep"`);
  }
});
