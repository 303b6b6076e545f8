import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { sql } from "../../core/database/sql.ts";
import { type StockOperations, stockLock } from "../../core/inventory/inventory.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import type { Opened, StockWithin } from "../support/stock-within.ts";
import { pause, until } from "../support/until.ts";

let skus = 0;

/** Changes of stock within a caller's transaction. */
export function describeInventoryWithin(name: string, make: () => Promise<StockWithin>): void {
  describe(`stock in a caller's transaction on ${name}`, () => {
    let underTest: StockWithin;
    let inventory: StockWithin["inventory"];
    let locks: LockStore;

    beforeAll(async () => {
      underTest = await make();
      inventory = underTest.inventory;
      locks = memoryLocks();
    });

    afterAll(async () => {
      await locks.close();
      await underTest.close();
    });

    const stocked = async (quantity: number): Promise<string> => {
      skus += 1;
      const sku = `within-${process.pid}-${skus}`;
      await inventory.set({ sku, quantity, operationId: `${sku}/set` });
      return sku;
    };

    const within = <T>(body: (stock: StockOperations, tx: Opened) => Promise<T>): Promise<T> =>
      underTest.run((tx) => body(inventory.within(tx), tx));

    const expired = (sku: string) =>
      until(async () => {
        const [one] = await inventory.reservations(sku);
        return one?.expiresIn === 0;
      });

    const all = async (stock: StockOperations, sku: string) => {
      const change = (name: string) => ({ sku, quantity: 3, operationId: `${sku}/${name}` });
      const closing = (name: string, reservation: string) => ({
        ...change(name),
        reservation: `${sku}/${reservation}`,
      });
      return [
        await stock.set({ ...change("0"), quantity: 20 }),
        await stock.restock(change("1")),
        await stock.decrement(change("2")),
        await stock.reserve({ ...change("3"), expiresIn: 60_000 }),
        await stock.reserve({ ...change("4"), expiresIn: 60_000 }),
        await stock.confirm(closing("5", "3")),
        await stock.cancel(closing("6", "4")),
        await stock.cancel(closing("7", "4")),
        await stock.decrement({ ...change("8"), quantity: 100 }),
      ];
    };

    const outcomes = [
      ...[20, 23, 20, 17, 14, 14, 17].map((remaining) => ({ outcome: "applied", remaining })),
      { outcome: "closed", remaining: 17 },
      { outcome: "sold-out", remaining: 17 },
    ];

    test("a change whose signal has aborted is not applied", async () => {
      const sku = await stocked(1);
      const gone = new Error("gone");
      const change = { sku, quantity: 1, operationId: `${sku}/1`, signal: AbortSignal.abort(gone) };
      await expect(within((stock) => stock.decrement(change))).rejects.toBe(gone);
      expect(await inventory.get(sku)).toMatchObject({ onHand: 1 });
    });

    test("changes commit or roll back with the transaction, and it sees them", async () => {
      const sku = await stocked(1);
      const before = await inventory.get(sku);
      const fault = new Error("the caller's own");
      const failing = within(async (stock) => {
        await all(stock, sku);
        throw fault;
      });
      await expect(failing).rejects.toBe(fault);
      expect(await inventory.get(sku)).toEqual(before);
      expect(await inventory.history(sku)).toHaveLength(1);
      const answers = await within(async (stock) => {
        const done = await all(stock, sku);
        expect(await stock.get(sku)).toMatchObject({ onHand: 17, reserved: 0, sold: 6 });
        return done;
      });
      expect(answers).toEqual(outcomes.map((outcome) => ({ ...outcome, replayed: false })));
      const replayed = outcomes.map((outcome) => ({ ...outcome, replayed: true }));
      expect(await all(inventory, sku)).toEqual(replayed);
      expect(await within((stock) => all(stock, sku))).toEqual(replayed);
      expect(await inventory.get(sku)).toMatchObject({ onHand: 17, sold: 6, supplied: 23 });
      expect(await inventory.history(sku)).toHaveLength(10);
    });

    test("changes of one sku that a transaction begins at once are made one after the other", async () => {
      const sku = await stocked(10);
      const orders = (...ids: readonly string[]) =>
        ids.map((id) => ({ operationId: `${sku}/${id}`, quantity: 1 }));
      const answers = await within((stock) =>
        Promise.all([
          stock.decrementMany({ sku, orders: orders("a", "b") }),
          stock.decrementMany({ sku, orders: orders("c") }),
          stock.decrement({ sku, quantity: 1, operationId: `${sku}/d` }),
        ]),
      );
      expect(answers.flat().map(({ outcome }) => outcome)).toEqual(Array(4).fill("applied"));
      expect(await inventory.get(sku)).toMatchObject({ onHand: 6, sold: 4 });
    });

    test("a transaction makes a sku and sells it to many orders", async () => {
      const sku = `within-new-${process.pid}`;
      const orders = [4, 9, 3].map((quantity, i) => ({ operationId: `${sku}/${i}`, quantity }));
      const sell = () =>
        within(async (stock) => {
          await stock.set({ sku, quantity: 10, operationId: `${sku}/set` });
          return stock.decrementMany({ sku, orders });
        });
      const answers = await sell();
      expect(answers.map(({ outcome }) => outcome)).toEqual(["applied", "sold-out", "applied"]);
      expect((await sell()).every(({ replayed }) => replayed)).toBe(true);
      expect(await inventory.get(sku)).toMatchObject({ onHand: 3, sold: 7 });
    });

    test("a transaction that runs short releases expired reservations", async () => {
      const sku = await stocked(4);
      const reserving = { sku, quantity: 3, expiresIn: 20 };
      await inventory.reserve({ ...reserving, operationId: `${sku}/1` });
      await expired(sku);
      const change = { sku, quantity: 4, operationId: `${sku}/2` };
      expect(await within((stock) => stock.decrement(change))).toMatchObject({
        outcome: "applied",
        remaining: 0,
      });
      await inventory.restock({ ...change, operationId: `${sku}/3` });
      await inventory.reserve({ ...reserving, operationId: `${sku}/4` });
      await expired(sku);
      const orders = [{ operationId: `${sku}/5`, quantity: 4 }];
      expect(await within((stock) => stock.decrementMany({ sku, orders }))).toMatchObject([
        { outcome: "applied", remaining: 0 },
      ]);
      expect(await inventory.get(sku)).toMatchObject({ onHand: 0, reserved: 0, sold: 8 });
    });

    test("a transaction refuses a late holder and keeps the claim until its end", async () => {
      const sku = await stocked(9);
      const first = await locks.lock(stockLock(sku), { ttl: 60_000, wait: 60_000 });
      await first.unlock();
      const next = await locks.lock(stockLock(sku), { ttl: 60_000, wait: 60_000 });
      const change = { sku, quantity: 1 };
      const order: string[] = [];
      const { isOptimistic } = underTest;
      const begun = Promise.withResolvers<void>();
      const claiming = begun.promise
        .then(() => inventory.claim(next.fence))
        .then(() => order.push("claimed"));
      const selling = within(async (stock) => {
        await stock.decrement({ ...change, operationId: `${sku}/1`, fence: first.fence });
        begun.resolve();
        // The claim waits for the transaction, unless nothing makes it wait.
        await (isOptimistic ? claiming : pause(100));
        order.push("committing");
      });
      // A transaction that cannot make others wait is refused itself.
      if (isOptimistic) await expect(selling).rejects.toMatchObject({ code: "FENCED_OUT" });
      else await selling;
      await claiming;
      const [claimed, committing] = ["claimed", "committing"];
      expect(order).toEqual(isOptimistic ? [claimed, committing] : [committing, claimed]);
      const late = { ...change, operationId: `${sku}/2`, fence: first.fence };
      const orders = [{ operationId: `${sku}/2`, quantity: 1 }];
      const bodies: readonly ((stock: StockOperations) => Promise<unknown>)[] = [
        (stock) => stock.decrement(late),
        (stock) => stock.restock(late),
        (stock) => stock.decrementMany({ sku, orders, fence: first.fence }),
      ];
      for (const body of bodies) {
        await expect(within(body)).rejects.toMatchObject({ code: "FENCED_OUT" });
      }
      expect(await inventory.get(sku)).toMatchObject({ onHand: isOptimistic ? 9 : 8 });
      await next.unlock();
      await using last = await locks.lock(stockLock(sku), { ttl: 60_000, wait: 60_000 });
      const { fence } = last;
      await within((stock) => stock.decrement({ ...change, operationId: `${sku}/3`, fence }));
    });

    test("a transaction refuses the same changes as the inventory", async () => {
      const sku = await stocked(9);
      const change = { sku, quantity: 1, operationId: `${sku}/1` };
      await inventory.decrement(change);
      const refused = async (code: string, body: (stock: StockOperations) => Promise<unknown>) =>
        expect(within(body)).rejects.toMatchObject({ code });
      await refused("OPERATION_CONFLICT", (stock) => stock.restock(change));
      await refused("UNKNOWN_SKU", (stock) =>
        stock.decrement({ ...change, sku: "no such sku", operationId: `${sku}/unknown` }),
      );
      const closing = { ...change, operationId: `${sku}/2`, reservation: "none" };
      await refused("UNKNOWN_RESERVATION", (stock) => stock.confirm(closing));
      const bad = within((stock) => stock.decrement({ ...change, quantity: 0.5 }));
      await expect(bad).rejects.toThrow(RangeError);
      // A failed transaction refuses every later statement.
      const dead = within(async (stock, tx) => {
        await tx.batch([sql`SELECT * FROM no_such_table`]).catch(() => {});
        return stock.decrement({ ...change, operationId: `${sku}/3` });
      });
      if (underTest.takesSql) await expect(dead).rejects.toMatchObject({ code: "STORE_REFUSED" });
      else await dead;
      expect(await inventory.get(sku)).toMatchObject({ onHand: underTest.takesSql ? 8 : 7 });
    });

    test("an operation id in many concurrent transactions is applied once and replayed in the rest", async () => {
      const sku = await stocked(9);
      const change = { sku, quantity: 1, operationId: `${sku}/1` };
      const answers = await Promise.all([
        ...Array.from({ length: 8 }, () =>
          within(async (stock) => {
            const answer = await stock.decrement(change);
            // By then the other transactions wait for the row.
            await pause(100);
            return answer;
          }),
        ),
        inventory.decrement(change),
      ]);
      expect(answers.filter(({ replayed }) => !replayed)).toHaveLength(1);
      expect(new Set(answers.map(({ remaining }) => remaining))).toEqual(new Set([8]));
      expect(await inventory.get(sku)).toMatchObject({ onHand: 8, sold: 1 });
    });

    test.each([
      {
        method: "decrement",
        sell: (stock: StockOperations, sku: string, operationId: string) =>
          stock.decrement({ sku, operationId, quantity: 1 }),
      },
      {
        method: "decrementMany",
        sell: async (stock: StockOperations, sku: string, operationId: string) =>
          (await stock.decrementMany({ sku, orders: [{ operationId, quantity: 1 }] }))[0],
      },
    ])(
      "of two concurrent transactions with one operation id, $method applies one and refuses the other sku",
      async ({ sell }) => {
        const skus = [await stocked(9), await stocked(9)];
        const operationId = `${skus[0]}/1`;
        const outcomes = skus.map(async (sku) => {
          const selling = within(async (stock) => {
            const answer = await sell(stock, sku, operationId);
            // By then the other transaction waits for the operation id.
            await pause(100);
            return answer?.outcome;
          });
          return selling.catch(({ code }) => code);
        });
        const refused = expect.stringMatching(/^(?:OPERATION_CONFLICT|conflict)$/);
        expect(await Promise.all(outcomes)).toEqual(expect.arrayContaining(["applied", refused]));
        const left = await Promise.all(skus.map((sku) => inventory.get(sku)));
        expect(left.map((level) => level?.onHand).toSorted()).toEqual([8, 9]);
      },
    );
  });
}
