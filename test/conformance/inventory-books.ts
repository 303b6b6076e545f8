import { describe, expect, test } from "vitest";
import { known } from "../support/known.ts";
import { pause } from "../support/until.ts";
import type { InventorySuite } from "./inventory-suite.ts";

/** Batches: many orders in one change. */
export function describeBatches(suite: InventorySuite): void {
  const { stocked, holding, expectConservation } = suite;

  describe("batches", () => {
    test("a batch serves its orders in their order, each as if it came alone", async () => {
      const sku = await stocked(10);
      const lock = await holding(sku);
      const order = (id: string, quantity: number) => ({ operationId: `${sku}/${id}`, quantity });
      await suite.inventory.decrement({ sku, ...order("before", 1) });
      const orders = [
        order("1", 4),
        order("2", 6),
        order("3", 5),
        order("1", 4),
        order("1", 5),
        order("before", 1),
        order("4", 1),
      ];
      const batch = { sku, orders, fence: lock.fence };
      const outcomes = async () =>
        (await suite.inventory.decrementMany(batch)).map(({ outcome, replayed }) => [
          outcome,
          replayed,
        ]);
      expect(await outcomes()).toEqual([
        ["applied", false],
        ["sold-out", false],
        ["applied", false],
        ["applied", true],
        ["conflict", false],
        ["applied", true],
        ["sold-out", false],
      ]);
      expect(await outcomes()).toEqual([
        ["applied", true],
        ["sold-out", true],
        ["applied", true],
        ["applied", true],
        ["conflict", false],
        ["applied", true],
        ["sold-out", true],
      ]);
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 0, sold: 10 });
      await expectConservation(sku);
      await lock.unlock();
    });

    test("batches and single orders of many clients add up", async () => {
      const sku = await stocked(200);
      const clients = Array.from({ length: 6 }, () => suite.underTest.open());
      let sold = 0;
      await Promise.all(
        clients.map(async ({ inventory: own }, client) => {
          for (let round = 0; round < 10; round += 1) {
            const orders = Array.from({ length: 5 }, (_, i) => ({
              operationId: `${sku}/${client}/${round}/${i}`,
              quantity: 1,
            }));
            for (const { outcome } of await known(() => own.decrementMany({ sku, orders }))) {
              if (outcome === "applied") sold += 1;
            }
            const single = { sku, quantity: 1, operationId: `${sku}/${client}/${round}` };
            if ((await known(() => own.decrement(single))).outcome === "applied") sold += 1;
          }
        }),
      );
      expect(sold).toBe(200);
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 0, sold: 200 });
      await expectConservation(sku);
      for (const client of clients) await client.locks.close();
    }, 240_000);

    test("a batch of 1,000 orders is one change, and its entries are read page by page", async () => {
      const sku = await stocked(900);
      const orders = Array.from({ length: 1_000 }, (_, i) => ({
        operationId: `${sku}/${"x".repeat(230)}/${i}`,
        quantity: 1,
      }));
      const answers = await suite.inventory.decrementMany({ sku, orders });
      expect(answers.map(({ outcome }) => outcome)).toEqual(
        orders.map((_, i) => (i < 900 ? "applied" : "sold-out")),
      );
      const again = await suite.inventory.decrementMany({ sku, orders });
      expect(again).toEqual(answers.map((answer) => ({ ...answer, replayed: true })));
      const page = await suite.inventory.history(sku, { limit: 130, before: 950 });
      expect(page.map(({ seq }) => seq)).toEqual(Array.from({ length: 130 }, (_, i) => 949 - i));
      await expectConservation(sku);
    });

    test("a batch without orders, with too many, or for an unknown sku is refused", async () => {
      const sku = await stocked(1);
      await expect(suite.inventory.decrementMany({ sku, orders: [] })).rejects.toThrow(RangeError);
      const orders = Array.from({ length: 1_001 }, (_, i) => ({
        operationId: `${i}`,
        quantity: 1,
      }));
      await expect(suite.inventory.decrementMany({ sku, orders })).rejects.toThrow(RangeError);
      const one = [{ operationId: `${sku}/x`, quantity: 1 }];
      await expect(
        suite.inventory.decrementMany({ sku: "no such sku", orders: one }),
      ).rejects.toMatchObject({ code: "UNKNOWN_SKU" });
    });
  });
}

/** Reservations: closed once, or expired. */
export function describeReservations(suite: InventorySuite): void {
  const { stocked, untilExpired, expectConservation } = suite;

  describe("reservations", () => {
    test("a reservation sets units aside until it is confirmed", async () => {
      const sku = await stocked(5);
      const reservation = `${sku}/r`;
      const reserving = { sku, quantity: 3, operationId: reservation, expiresIn: 60_000 };
      expect(await suite.inventory.reserve(reserving)).toMatchObject({
        outcome: "applied",
        remaining: 2,
      });
      expect(await suite.inventory.reserve(reserving)).toMatchObject({
        replayed: true,
        remaining: 2,
      });
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 2, reserved: 3, sold: 0 });
      const closing = { sku, reservation, operationId: `${sku}/c` };
      expect(await suite.inventory.confirm(closing)).toMatchObject({
        outcome: "applied",
        replayed: false,
      });
      expect(await suite.inventory.confirm(closing)).toMatchObject({
        outcome: "applied",
        replayed: true,
      });
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 2, reserved: 0, sold: 3 });
      const again = { sku, reservation, operationId: `${sku}/c2` };
      expect(await suite.inventory.confirm(again)).toMatchObject({ outcome: "closed" });
      expect(await suite.inventory.cancel({ ...again, operationId: `${sku}/c3` })).toMatchObject({
        outcome: "closed",
      });
      // A late duplicate of the reservation does not reopen it.
      await suite.inventory.reserve(reserving);
      expect(await suite.inventory.cancel({ ...again, operationId: `${sku}/c4` })).toMatchObject({
        outcome: "closed",
      });
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 2, reserved: 0, sold: 3 });
      await expectConservation(sku);
    });

    test("a cancelled reservation goes back on hand once", async () => {
      const sku = await stocked(5);
      const reservation = `${sku}/r`;
      await suite.inventory.reserve({
        sku,
        quantity: 3,
        operationId: reservation,
        expiresIn: 60_000,
      });
      const closing = { sku, reservation, operationId: `${sku}/c` };
      expect(await suite.inventory.cancel(closing)).toMatchObject({
        outcome: "applied",
        remaining: 5,
      });
      expect(await suite.inventory.cancel(closing)).toMatchObject({ replayed: true });
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 5, reserved: 0, sold: 0 });
      await expectConservation(sku);
    });

    test("the units of an open reservation are not sold to others", async () => {
      const sku = await stocked(5);
      const reserving = { sku, quantity: 4, operationId: `${sku}/r`, expiresIn: 600_000 };
      await suite.inventory.reserve(reserving);
      const change = { sku, quantity: 2, operationId: `${sku}/1` };
      expect(await suite.inventory.decrement(change)).toMatchObject({ outcome: "sold-out" });
      await expectConservation(sku);
    });

    test("reservations are listed until they are closed, or expired ones are put back", async () => {
      const sku = await stocked(9);
      const reserve = (id: string, quantity: number, expiresIn: number) =>
        suite.inventory.reserve({ sku, quantity, operationId: `${sku}/${id}`, expiresIn });
      expect(await suite.inventory.reservations(sku)).toEqual([]);
      await reserve("a b", 1, 50);
      await reserve("c", 2, 600_000);
      await reserve("d", 3, 900_000);
      await untilExpired(50);
      const [expired, open, last] = await suite.inventory.reservations(sku);
      expect(expired).toEqual({ id: `${sku}/a b`, quantity: 1, expiresIn: 0 });
      expect(open).toMatchObject({ id: `${sku}/c`, quantity: 2 });
      expect(open?.expiresIn).toBeGreaterThan(300_000);
      expect(open?.expiresIn).toBeLessThanOrEqual(660_000);
      expect(last).toMatchObject({ id: `${sku}/d`, quantity: 3 });
      expect(await suite.inventory.reservations(sku, { limit: 2 })).toMatchObject([
        { id: `${sku}/a b` },
        { id: `${sku}/c` },
      ]);
      await suite.inventory.expire(sku);
      await suite.inventory.confirm({ sku, reservation: `${sku}/c`, operationId: `${sku}/e` });
      expect(await suite.inventory.reservations(sku)).toMatchObject([{ id: `${sku}/d` }]);
      await expect(suite.inventory.reservations(sku, { limit: 0 })).rejects.toThrow(RangeError);
    });

    test("an expired reservation cannot be confirmed, and its units are sold to others", async () => {
      const sku = await stocked(5);
      const reservation = `${sku}/r`;
      await suite.inventory.reserve({ sku, quantity: 3, operationId: reservation, expiresIn: 100 });
      await suite.inventory.reserve({ sku, quantity: 1, operationId: `${sku}/r2`, expiresIn: 100 });
      await untilExpired(100);
      const confirming = { sku, reservation, operationId: `${sku}/c` };
      expect(await suite.inventory.confirm(confirming)).toMatchObject({ outcome: "closed" });
      expect(
        await suite.inventory.decrement({ sku, quantity: 5, operationId: `${sku}/2` }),
      ).toMatchObject({
        outcome: "applied",
        remaining: 0,
      });
      expect(await suite.inventory.confirm(confirming)).toMatchObject({
        outcome: "closed",
        replayed: true,
      });
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 0, reserved: 0, sold: 5 });
      await expectConservation(sku);
    });

    test("a batch that runs short releases expired reservations, and so does expire", async () => {
      const sku = await stocked(4);
      await suite.inventory.reserve({ sku, quantity: 4, operationId: `${sku}/r`, expiresIn: 50 });
      await untilExpired(50);
      const orders = [{ operationId: `${sku}/1`, quantity: 2 }];
      expect(await suite.inventory.decrementMany({ sku, orders })).toMatchObject([
        { outcome: "applied" },
      ]);
      await suite.inventory.reserve({ sku, quantity: 2, operationId: `${sku}/r2`, expiresIn: 50 });
      await untilExpired(50);
      await suite.inventory.restock({ sku, quantity: 1, operationId: `${sku}/2` });
      await suite.inventory.reserve({
        sku,
        quantity: 1,
        operationId: `${sku}/r3`,
        expiresIn: 60_000,
      });
      await suite.inventory.expire(sku);
      await suite.inventory.expire(sku);
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 2, reserved: 1, sold: 2 });
      await expectConservation(sku);
    });

    test("closing a reservation that was never made is an error", async () => {
      const sku = await stocked(5);
      const closing = { sku, reservation: "no such reservation", operationId: `${sku}/c` };
      const unknown = { code: "UNKNOWN_RESERVATION" };
      await expect(suite.inventory.confirm(closing)).rejects.toMatchObject(unknown);
      await expect(suite.inventory.cancel(closing)).rejects.toMatchObject(unknown);
      // A decrement is not a reservation, nor is a reserve that was sold out.
      await suite.inventory.decrement({ sku, quantity: 1, operationId: `${sku}/1` });
      await suite.inventory.reserve({
        sku,
        quantity: 9,
        operationId: `${sku}/2`,
        expiresIn: 1_000,
      });
      for (const reservation of [`${sku}/1`, `${sku}/2`]) {
        await expect(suite.inventory.confirm({ ...closing, reservation })).rejects.toMatchObject(
          unknown,
        );
      }
      // A reservation belongs to its sku.
      const other = await stocked(5);
      const reservation = `${other}/r`;
      const reserving = { sku: other, quantity: 2, operationId: reservation, expiresIn: 60_000 };
      await suite.inventory.reserve(reserving);
      for (const close of ["confirm", "cancel"] as const) {
        const change = { sku, reservation, operationId: `${sku}/${close}` };
        await expect(suite.inventory[close](change)).rejects.toMatchObject(unknown);
      }
      expect(await suite.inventory.get(other)).toMatchObject({ onHand: 3, reserved: 2 });
    });

    test("a reservation is closed once under concurrent confirms, cancels and expiries", async () => {
      const sku = await stocked(60);
      const open = () => suite.underTest.open().inventory;
      const clients = [open(), open(), open(), open()] as const;
      for (let i = 0; i < 20; i += 1) {
        const reservation = `${sku}/r${i}`;
        const reserving = { sku, quantity: 3, operationId: reservation, expiresIn: 8 };
        await known(() => suite.inventory.reserve(reserving));
        if (i % 2 === 0) await pause(i % 9);
        const confirming = { sku, reservation, operationId: `${reservation}/a` };
        const answers = await Promise.all([
          known(() => clients[0].confirm(confirming)),
          known(() => clients[1].cancel({ ...confirming, operationId: `${reservation}/b` })),
          known(() => clients[2].confirm(confirming)),
          clients[3].expire(sku),
        ]);
        const applied = answers.filter((answer) => answer?.outcome === "applied");
        const kinds = new Set(applied.map((answer) => answer === answers[1]));
        expect(kinds.size).toBeLessThanOrEqual(1);
      }
      await untilExpired(8);
      await suite.inventory.expire(sku);
      expect(await suite.inventory.get(sku)).toMatchObject({ reserved: 0, supplied: 60 });
      await expectConservation(sku);
    }, 240_000);
  });
}

/** The ledger: it adds up. */
export function describeLedger(suite: InventorySuite): void {
  const { stocked, untilExpired, expectConservation } = suite;

  describe("the ledger", () => {
    test("the books add up after a new count", async () => {
      const sku = await stocked(5);
      await suite.inventory.decrement({ sku, quantity: 2, operationId: `${sku}/1` });
      await suite.inventory.set({ sku, quantity: 0, operationId: `${sku}/2` });
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 0, sold: 2, supplied: 2 });
      await suite.inventory.set({ sku, quantity: 7, operationId: `${sku}/3` });
      expect(
        await suite.inventory.set({ sku, quantity: 7, operationId: `${sku}/3` }),
      ).toMatchObject({
        replayed: true,
      });
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 7, sold: 2, supplied: 9 });
      await expectConservation(sku);
    });

    test("the ledger is read newest first, page by page", async () => {
      const sku = await stocked(9);
      for (const order of [1, 2, 3]) {
        await suite.inventory.decrement({ sku, quantity: order, operationId: `${sku}/${order}` });
      }
      const page = await suite.inventory.history(sku, { limit: 2 });
      expect(page.map(({ quantity }) => quantity)).toEqual([3, 2]);
      const before = page[1]?.seq ?? 0;
      const rest = await suite.inventory.history(sku, { before });
      expect(rest.map(({ kind, quantity }) => [kind, quantity])).toEqual([
        ["decrement", 1],
        ["set", 9],
      ]);
      expect(Math.abs(Date.now() - (page[0]?.at.getTime() ?? 0))).toBeLessThan(60_000);
      await expect(suite.inventory.history(sku, { limit: 0 })).rejects.toThrow(RangeError);
    });

    test("skus are listed by their prefix, page by page, with their levels", async () => {
      const prefix = await stocked(1);
      const skus = [`${prefix}%`, `${prefix}-a/b`, `${prefix}-c`];
      for (const [i, sku] of skus.entries()) {
        await suite.inventory.set({ sku, quantity: i, operationId: `${sku}/set` });
        await suite.inventory.restock({ sku, quantity: 5, operationId: `${sku}/restock` });
        await suite.inventory.decrement({ sku, quantity: 2, operationId: `${sku}/sale` });
      }
      const all = await suite.inventory.list({ prefix });
      expect(all.map(({ sku }) => sku).sort()).toEqual([prefix, ...skus].sort());
      for (const level of all) expect(level).toEqual(await suite.inventory.get(level.sku));
      const after = all[0]?.sku ?? "";
      expect(await suite.inventory.list({ prefix, after, limit: 2 })).toEqual(all.slice(1, 3));
      expect(await suite.inventory.list({ prefix, after: all.at(-1)?.sku ?? "" })).toEqual([]);
      await expect(suite.inventory.list({ limit: 0 })).rejects.toThrow(RangeError);
    });

    test("a list has no sku without its prefix, wherever it begins", async () => {
      const sku = await stocked(1);
      const [early, late] = [`${sku}-a`, `${sku}-b`];
      for (const each of [`${early}1`, `${early}2`, `${late}1`, `${late}2`]) {
        await suite.inventory.set({ sku: each, quantity: 1, operationId: `${each}/set` });
      }
      const list = async (prefix: string, after: string) =>
        (await suite.inventory.list({ prefix, after })).map((level) => level.sku);
      expect(await list(late, `${early}1`)).toEqual([`${late}1`, `${late}2`]);
      expect(await list(early, `${late}1`)).toEqual([]);
    });

    test("the books add up under 32 concurrent workers that mix all changes", async () => {
      const sku = await stocked(40);
      const clients = Array.from({ length: 8 }, () => suite.underTest.open());
      const work = async (client: number) => {
        const own = clients[client % clients.length]?.inventory ?? suite.inventory;
        for (let i = 0; i < 6; i += 1) {
          const id = `${sku}/${client % 16}/${i}`;
          const change = { sku, quantity: 1 + (client % 3) };
          if (i % 3 === 0) {
            await known(() => own.decrement({ ...change, quantity: 1, operationId: id }));
          }
          if (i % 3 === 1) {
            const expiresIn = 5 + i * 10;
            await known(() => own.reserve({ ...change, quantity: 1, operationId: id, expiresIn }));
            const closing = { sku, reservation: id, operationId: `${id}/close` };
            const close = client % 2 === 0 ? own.confirm : own.cancel;
            await known(() => close(closing)).catch((error) => {
              expect(["UNKNOWN_RESERVATION", "OPERATION_CONFLICT"]).toContain(error.code);
            });
          }
          if (i % 3 === 2) {
            await known(() => own.restock({ ...change, quantity: 1, operationId: id }));
          }
        }
      };
      await Promise.all(Array.from({ length: 32 }, (_, client) => work(client)));
      await untilExpired(55);
      await suite.inventory.expire(sku);
      expect(await suite.inventory.get(sku)).toMatchObject({ reserved: 0 });
      await expectConservation(sku);
      for (const client of clients) await client.locks.close();
    }, 240_000);
  });
}
