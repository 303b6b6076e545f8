import { writeFile } from "node:fs/promises";
import { describe, expect, inject, test, vi } from "vitest";
import { z } from "zod";
import { claimFence } from "../../core/database/claim.ts";
import { asNumber, asText, sql } from "../../core/database/sql.ts";
import { InventoryError } from "../../core/inventory/inventory.ts";
import { StoreUnavailableError } from "../../core/lock/errors.ts";
import { createRuntime, workflow } from "../../core/steps/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { fulfil } from "../../functions/batch/fulfil.ts";
import { answerGroup } from "../../functions/batch/group.ts";
import { addOrders, answerOrders, openOrders } from "../../functions/batch/orders.ts";
import { runWorker } from "../../functions/worker/worker.ts";
import { open } from "../../infra/open.ts";
import { cli, type Running, startCli } from "../support/cli.ts";
import { cells } from "../support/matrix.ts";
import type { SqlServer } from "../support/sql-servers.ts";
import { temporaryDatabase, temporaryFile } from "../support/under-test.ts";
import { pause, until } from "../support/until.ts";

const ORDERS = 10_000;
const SKUS = 200;
const HOT = 3;
const KILLS = 4;

const databases = [
  { name: "sqlite", server: undefined },
  ...[...inject("sqlServers"), ...inject("postgresServers")].map((server) => ({
    name: server.name,
    server,
  })),
];

test.each(databases.filter(({ server }) => server))(
  "orders are read after the fence is claimed: what a late holder commits meanwhile is not answered again ($name)",
  async ({ server }) => {
    const { locks, database, close } = await place(server);
    const inventory = sqlInventory(database);
    await inventory.set({ sku: "a", quantity: 10, operationId: "set" });
    await addOrders(database, [{ orderId: "order", sku: "a", quantity: 1 }]);
    const late = await locks.lock("sku/a", { ttl: 60_000, wait: 60_000 });
    await late.unlock();
    const lock = await locks.lock("sku/a", { ttl: 60_000, wait: 60_000 });
    let answering: Promise<unknown> = Promise.resolve();
    await database.transaction(async (tx) => {
      await claimFence(database, tx, late.fence);
      answering = answerGroup({ database, inventory, group: 10 }, "a", lock.fence);
      await pause(300);
      await tx.commit(answerOrders(database, new Map([["order", "refused"]])));
    });
    expect(await answering).toEqual(new Map());
    expect(await inventory.get("a")).toMatchObject({ sold: 0 });
    await lock.unlock();
    await close();
  },
);

test.each(databases)(
  "an order that is added twice at once is in the table once ($name)",
  async ({ server }) => {
    const { database, close } = await place(server);
    const order = { orderId: "7", sku: "a", quantity: 1 };
    const other = { ...order, orderId: "8" };
    expect(await addOrders(database, [order, other, order])).toBe(2);
    expect(await addOrders(database, [order, { ...order, orderId: "9" }])).toBe(1);
    expect(await openOrders(database, "a", 10)).toMatchObject([order, other, { orderId: "9" }]);
    await close();
  },
);

test.each(databases)(
  "an order with the id of one for another sku or quantity is refused ($name)",
  async ({ server }) => {
    const { database, close } = await place(server);
    const order = { orderId: "7", sku: "a", quantity: 1 };
    const conflict = { code: "OPERATION_CONFLICT", message: expect.stringContaining('"7"') };
    const more = { ...order, quantity: 2 };
    await expect(addOrders(database, [order, more])).rejects.toMatchObject(conflict);
    expect(await addOrders(database, [order])).toBe(1);
    await expect(addOrders(database, [more])).rejects.toMatchObject(conflict);
    await expect(addOrders(database, [{ ...order, sku: "b" }])).rejects.toMatchObject(conflict);
    expect(await openOrders(database, "a", 10)).toMatchObject([order]);
    await close();
  },
);

test("fulfil rejects, and advises to raise the generation, when the fences of all new locks are refused", async () => {
  const { locks, database, close } = await place(undefined);
  const inventory = sqlInventory(database);
  await inventory.set({ sku: "a", quantity: 2, operationId: "set" });
  await addOrders(database, [{ orderId: "1", sku: "a", quantity: 1 }]);
  expect(await fulfil({ database, inventory, locks })).toMatchObject({ fulfilled: 1 });
  await database.batch([sql`UPDATE lockstep_claim SET generation = generation + 5`]);
  await addOrders(database, [{ orderId: "2", sku: "a", quantity: 1 }]);
  await expect(fulfil({ database, inventory, locks })).rejects.toMatchObject({
    code: "FENCED_OUT",
    message: expect.stringContaining("lockstep raise-generation"),
  });
  await close();
});

test("fulfilment and a worker refuse a controller in place of its signal", async () => {
  const { locks, database, close } = await place(undefined);
  const inventory = sqlInventory(database);
  const signal = new AbortController() as never;
  await expect(fulfil({ database, inventory, locks, signal })).rejects.toThrow("signal must be");
  const idle = workflow({ name: "idle", version: 1, input: z.null() }, async () => {});
  const runtime = createRuntime({ journal: memoryJournal(), workflows: [idle] });
  await expect(runWorker({ runtime, signal })).rejects.toThrow("signal must be");
  await expect(runWorker({ runtime, queues: "mail" as never })).rejects.toThrow("queues must be");
  await close();
});

/** A queue of its own. */
async function place(server: SqlServer | undefined) {
  const temporary = server ? await temporaryDatabase(server) : await temporaryFile();
  const url = "url" in temporary ? temporary.url : `sqlite:${temporary.file}`;
  const remove = "drop" in temporary ? temporary.drop : temporary.remove;
  const opened = await open(url);
  const { database, inventory, locks } = opened;
  await migrate(database);
  return {
    ...{ inventory, locks, database },
    here: (...args: readonly string[]) => startCli([...args, "--store", url]),
    read: (statement: ReturnType<typeof sql>) => database.read(statement),
    async close() {
      await opened.close();
      await remove();
    },
  };
}

describe.concurrent.each(cells(databases))("orders on $name", ({ server }) => {
  /** Half of the orders are for the few that everybody wants. */
  const skuOf = (i: number) => `sku-${i % 2 ? (i >> 1) % HOT : (i >> 1) % SKUS}`;

  test(`${ORDERS} of them, by 4 processes that are killed again and again: each gets one answer, and all of the stock is sold`, async () => {
    const { inventory, locks, here, read, close } = await place(server);
    const stockOf = (k: number) => (k < HOT ? 1_500 : 20);
    const lines = Array.from({ length: ORDERS }, (_, i) =>
      JSON.stringify({ orderId: `order-${i}`, sku: skuOf(i), quantity: 1 }),
    );
    const { file, remove: removeFile } = await temporaryFile();
    await writeFile(file, lines.join("\n"));
    for (let k = 0; k < SKUS; k += 1) {
      const change = { sku: `sku-${k}`, quantity: stockOf(k), operationId: `set-${k}` };
      await inventory.set(change);
    }
    // The second time changes nothing.
    for (const _ of [1, 2]) expect((await here("orders", "add", file).finished).status).toBe(0);
    await removeFile();

    const start = () => here("orders", "fulfil", "--group", "25", "--ttl", "1500ms");
    const crew: Running[] = [start(), start(), start(), start()];
    const left = async () => Number((await read(OPEN))[0]?.orders);
    for (let kill = 0; kill < KILLS; kill += 1) {
      const before = await left();
      // In the middle of its work.
      await until(async () => (await left()) < before, 60_000);
      await pause(Math.random() * 50);
      const at = kill % crew.length;
      crew[at]?.child.kill("SIGKILL");
      crew[at] = start();
    }
    expect(await left()).toBeGreaterThan(0);
    const ends = await Promise.all(crew.map(({ finished }) => finished));
    for (const { status, stderr, stdout } of ends) {
      expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
      expect(JSON.parse(stdout)).toMatchObject({ refused: 0, "unknown-sku": 0 });
    }

    const ordered = new Map<string, number>();
    for (let i = 0; i < ORDERS; i += 1) ordered.set(skuOf(i), (ordered.get(skuOf(i)) ?? 0) + 1);
    for (const row of await read(BOOKS)) {
      const sku = asText(row.sku);
      const wanted = ordered.get(sku) ?? 0;
      const stock = stockOf(Number(sku.slice("sku-".length)));
      const sold = Math.min(stock, wanted);
      const { on_hand, sold: booked, fulfilled, refused, ledger } = row;
      const numbers = [on_hand, booked, fulfilled, refused, ledger].map(asNumber);
      expect({ sku, numbers }).toEqual({
        sku,
        numbers: [stock - sold, sold, sold, wanted - sold, wanted],
      });
    }
    const counts = JSON.parse((await here("orders", "count").finished).stdout);
    expect(counts).toMatchObject({ open: 0, refused: 0, "unknown-sku": 0 });
    expect(counts.fulfilled + counts["sold-out"]).toBe(ORDERS);
    expect(await locks.list()).toEqual([]);
    await close();
  }, 240_000);
});

test("a sku with a busy lock is skipped, and orders for an unknown sku get their status", async () => {
  const { inventory, locks, database, here, read, close } = await place(undefined);
  await inventory.set({ sku: "a", quantity: 1, operationId: "set-a" });
  await inventory.set({ sku: "b", quantity: 1, operationId: "set-b" });
  const { file, remove: removeFile } = await temporaryFile();
  const lines = ["a", "b", "nowhere"].map((sku) =>
    JSON.stringify({ orderId: `other-${sku}`, sku, quantity: 1 }),
  );
  await writeFile(file, lines.join("\n"));
  await here("orders", "add", file).finished;
  await removeFile();
  const lock = await locks.lock("sku/a", { ttl: 10_000, wait: 1_000 });
  const fulfilling = here("orders", "fulfil", "--follow");
  const answerOf = async (orderId: string) =>
    (await read(sql`SELECT answer FROM lockstep_order WHERE order_id = ${orderId}`))[0]?.answer;
  await until(async () => (await answerOf("other-b")) && answerOf("other-nowhere"), 60_000);
  expect(await answerOf("other-a")).toBeNull();
  await lock.unlock();
  await until(() => answerOf("other-a"), 60_000);
  fulfilling.child.kill("SIGTERM");
  const { status, stdout } = await fulfilling.finished;
  expect(status).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({ fulfilled: 2, "unknown-sku": 1, groups: 3 });
  expect(JSON.parse(stdout).passedOver).toBeGreaterThan(0);
  await database.transaction(async (tx) => {
    expect(await openOrders(tx, "a", 10)).toEqual([]);
  });
  await close();
}, 120_000);

const OPEN = sql`SELECT COUNT(*) AS orders FROM lockstep_order WHERE answer IS NULL`;

const BOOKS = sql`
  SELECT s.sku, s.on_hand, s.sold,
    (SELECT COUNT(*) FROM lockstep_order AS o WHERE o.sku = s.sku AND o.answer = 'fulfilled') AS fulfilled,
    (SELECT COUNT(*) FROM lockstep_order AS o WHERE o.sku = s.sku AND o.answer = 'sold-out') AS refused,
    (SELECT COUNT(*) FROM lockstep_ledger AS l WHERE l.sku = s.sku AND l.kind = 'decrement') AS ledger
  FROM lockstep_stock AS s WHERE s.sku LIKE 'sku-%'`;

test("orders for a sku that is made meanwhile stay open, and are served by the next poll", async () => {
  const { locks, database, close } = await place(undefined);
  const inventory = sqlInventory(database);
  await addOrders(database, [{ orderId: "order", sku: "new", quantity: 1 }]);
  const lock = await locks.lock("sku/new", { ttl: 60_000, wait: 60_000 });
  let transactions = 0;
  const observed = {
    ...database,
    dialect: database.dialect,
    async transaction<T>(...args: Parameters<typeof database.transaction<T>>) {
      transactions += 1;
      if (transactions === 2) {
        await inventory.set({ sku: "new", quantity: 9, operationId: "set" });
        await addOrders(database, [{ orderId: "late", sku: "new", quantity: 1 }]);
      }
      return database.transaction(...args);
    },
  } as typeof database;
  const answer = () => answerGroup({ database: observed, inventory, group: 10 }, "new", lock.fence);
  expect(await answer()).toEqual(new Map());
  expect(await answer()).toEqual(
    new Map([
      ["order", "fulfilled"],
      ["late", "fulfilled"],
    ]),
  );
  await lock.unlock();
  await close();
});

test("fulfil goes on when another client has just used an order's id for another sku", async () => {
  const { locks, database, close } = await place(undefined);
  const inventory = sqlInventory(database);
  await inventory.set({ sku: "a", quantity: 9, operationId: "set" });
  await addOrders(database, [{ orderId: "order", sku: "a", quantity: 1 }]);
  let conflicts = 0;
  const conflicting: typeof inventory = Object.create(inventory, {
    within: {
      value: (tx: Parameters<typeof inventory.within>[0]) => {
        const stock = inventory.within(tx);
        const decrementMany: typeof stock.decrementMany = async (batch) => {
          conflicts += 1;
          if (conflicts > 1) return stock.decrementMany(batch);
          throw new InventoryError("OPERATION_CONFLICT", "the id was used");
        };
        return { ...stock, get: stock.get, decrementMany };
      },
    },
  });
  const report = await fulfil({ database, inventory: conflicting, locks });
  expect(report.passedOver + report.fulfilled).toBeGreaterThan(0);
  expect(conflicts).toBeGreaterThan(0);
  await close();
});

test("fulfil waits for a store in a short outage, however long the other skus have taken", async () => {
  const { inventory, locks, database, here, close } = await place(undefined);
  for (const sku of ["a", "b"]) {
    await inventory.set({ sku, quantity: 1, operationId: `set-${sku}` });
  }
  const { file, remove } = await temporaryFile();
  const orders = ["a", "b"].map((sku) => JSON.stringify({ orderId: sku, sku, quantity: 1 }));
  await writeFile(file, orders.join("\n"));
  expect((await here("orders", "add", file).finished).status).toBe(0);
  await remove();
  vi.useFakeTimers({ toFake: ["Date"] });
  try {
    let calls = 0;
    const { traits } = locks;
    const tryLock: typeof locks.tryLock = (name, options) => {
      calls += 1;
      if (calls === 1) vi.setSystemTime(Date.now() + 40_000);
      if (calls === 2) throw new StoreUnavailableError("this store", "away");
      return locks.tryLock(name, options);
    };
    const report = await fulfil({
      ...{ database, inventory: sqlInventory(database), concurrency: 1 },
      locks: { traits, tryLock },
    });
    expect(report).toMatchObject({ fulfilled: 2 });
    expect(calls).toBe(3);
  } finally {
    vi.useRealTimers();
  }
  await close();
});

test("invalid orders are refused with their line number, and no order is added", async () => {
  const { file, remove } = await temporaryFile();
  const store = ["--store", `sqlite:${file}.db`];
  const good = '{"orderId":"1","sku":"a","quantity":1}';
  const cases = [
    [`${good}\n\n{"orderId":"2","sku":"a"}`, "line 3: quantity"],
    ["null", "line 1"],
  ] as const;
  for (const [lines, hint] of cases) {
    await writeFile(file, lines);
    const { status, stderr } = await cli("orders", "add", file, ...store);
    expect({ lines, status }).toEqual({ lines, status: 64 });
    expect(stderr).toContain(hint);
  }
  expect(await cli("orders", "count", ...store)).toMatchObject({
    stdout: expect.stringContaining('"open":0'),
  });
  await remove();
}, 120_000);
