import { describe, expect, test } from "vitest";
import {
  MAX_QUANTITY,
  type QuantityChange,
  type StockResult,
} from "../../core/inventory/inventory.ts";
import { known } from "../support/known.ts";
import { pause } from "../support/until.ts";
import type { InventorySuite } from "./inventory-suite.ts";

/** Decrements: never oversold, applied once. */
export function describeDecrements(suite: InventorySuite): void {
  const { stocked, expectConservation } = suite;

  describe("decrements", () => {
    test("a decrement takes the units on hand and returns how many remain", async () => {
      const sku = await stocked(5);
      expect(
        await suite.inventory.decrement({ sku, quantity: 3, operationId: `${sku}/1` }),
      ).toEqual({
        outcome: "applied",
        remaining: 2,
        replayed: false,
      });
      expect(
        await suite.inventory.decrement({ sku, quantity: 2, operationId: `${sku}/2` }),
      ).toEqual({
        outcome: "applied",
        remaining: 0,
        replayed: false,
      });
      await expectConservation(sku);
    });

    test("a decrement of more units than are on hand changes nothing", async () => {
      const sku = await stocked(5);
      const change = { sku, quantity: 6, operationId: `${sku}/1` };
      const answer = { outcome: "sold-out", remaining: 5, replayed: false };
      expect(await suite.inventory.decrement(change)).toEqual(answer);
      await suite.inventory.restock({ sku, quantity: 5, operationId: `${sku}/2` });
      // The same order keeps its result, although the stock would suffice now.
      expect(await suite.inventory.decrement(change)).toEqual({ ...answer, replayed: true });
      await expectConservation(sku);
    });

    test("32 concurrent buyers never oversell, and every duplicate gets the first result", async () => {
      const sku = await stocked(100);
      const clients = Array.from({ length: 8 }, () => suite.underTest.open());
      const answers = new Map<string, StockResult[]>();
      const buyer = async (number: number) => {
        const { inventory: own } = clients[number % clients.length] ?? suite.underTest.open();
        for (let order = 0; order < 8; order += 1) {
          const operationId = `${sku}/${(number * 5 + order) % 160}`;
          // On etcd the clients' transactions conflict: at 100 ms a round trip, a call may lose all conflicts of its 10 s.
          const answer = await known(() => own.decrement({ sku, quantity: 1, operationId }));
          answers.set(operationId, [...(answers.get(operationId) ?? []), answer]);
        }
      };
      await Promise.all(Array.from({ length: 32 }, (_, number) => buyer(number)));
      const sold = [...answers.values()].filter(([first]) => first?.outcome === "applied");
      expect(sold.length).toBe(100);
      for (const all of answers.values()) {
        expect(new Set(all.map(({ outcome, remaining }) => `${outcome} ${remaining}`)).size).toBe(
          1,
        );
        // None where the first answer was lost: the request that was sent again found its result.
        expect(all.filter(({ replayed }) => !replayed).length).toBeLessThanOrEqual(1);
      }
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 0, sold: 100, supplied: 100 });
      await expectConservation(sku);
      for (const client of clients) await client.locks.close();
    }, 240_000);

    test("a change takes its own fields alone, whatever else is in the object", async () => {
      const sku = await stocked(10);
      const { inventory } = suite;
      await inventory.reserve({ sku, quantity: 4, operationId: `${sku}/r`, expiresIn: "15m" });
      const line = { sku, quantity: 1, reservation: `${sku}/r`, expiresIn: 60_000 };
      expect(await inventory.decrement({ ...line, operationId: `${sku}/1` })).toMatchObject({
        outcome: "applied",
        remaining: 5,
      });
      const orders = [{ quantity: 1, reservation: `${sku}/r`, operationId: `${sku}/2` }];
      expect(await inventory.decrementMany({ sku, orders })).toMatchObject([{ remaining: 4 }]);
      await inventory.reserve({ ...line, operationId: `${sku}/3` });
      expect(await inventory.get(sku)).toMatchObject({ onHand: 3, reserved: 5, sold: 2 });
      expect(await inventory.reservations(sku)).toHaveLength(2);
      const confirmed = await inventory.confirm({ ...line, operationId: `${sku}/4` });
      expect(confirmed).toMatchObject({ outcome: "applied", replayed: false });
      const { quantity: _, expiresIn: __, ...plain } = line;
      const again = await inventory.confirm({ ...plain, operationId: `${sku}/4` });
      expect(again).toEqual({ ...confirmed, replayed: true });
      await expectConservation(sku);
    });

    test("a batch with a hole, and a signal of another kind, are refused by name", async () => {
      const sku = await stocked(1);
      const { inventory } = suite;
      await expect(inventory.decrementMany({ sku, orders: new Array(3) })).rejects.toThrow(
        TypeError,
      );
      const change = { sku, quantity: 1, operationId: `${sku}/1`, signal: 0 as never };
      await expect(inventory.decrement(change)).rejects.toThrow(/^signal must be an AbortSignal/);
      expect(await inventory.get(sku)).toMatchObject({ onHand: 1 });
    });

    test("a decrement of an unknown sku is an error and leaves no trace", async () => {
      const change = { sku: "no such sku", quantity: 1, operationId: "unknown/1" };
      await expect(suite.inventory.decrement(change)).rejects.toMatchObject({
        code: "UNKNOWN_SKU",
      });
      expect(await suite.inventory.get("no such sku")).toBeUndefined();
      expect(await suite.inventory.history("no such sku")).toEqual([]);
      const sku = await stocked(1);
      expect(await suite.inventory.decrement({ ...change, sku })).toMatchObject({
        outcome: "applied",
      });
    });

    test("a change under an operation id of another change is refused", async () => {
      const [sku, other] = [await stocked(9), await stocked(9)];
      const change = { sku, quantity: 1, operationId: `${sku}/1` };
      await suite.inventory.decrement(change);
      const conflict = { code: "OPERATION_CONFLICT" };
      await expect(suite.inventory.decrement({ ...change, quantity: 2 })).rejects.toMatchObject(
        conflict,
      );
      await expect(suite.inventory.decrement({ ...change, sku: other })).rejects.toMatchObject(
        conflict,
      );
      await expect(suite.inventory.restock(change)).rejects.toMatchObject(conflict);
      await expect(suite.inventory.reserve({ ...change, expiresIn: 1_000 })).rejects.toMatchObject(
        conflict,
      );
      await expect(suite.inventory.set(change)).rejects.toMatchObject(conflict);
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 8 });
      expect(await suite.inventory.get(other)).toMatchObject({ onHand: 9 });
    });

    test("two concurrent decrements of two skus under one operation id are applied once", async () => {
      const skus = [await stocked(200), await stocked(200)] as const;
      const [one, two] = [suite.underTest.open(), suite.underTest.open()];
      const ids = Array.from({ length: 80 }, (_, i) => `${skus[0]}/both/${i}`);
      const singles = ids.slice(0, 10).map(async (operationId) => {
        const answers = await Promise.allSettled([
          known(() => one.inventory.decrement({ sku: skus[0], quantity: 1, operationId })),
          known(() => two.inventory.decrement({ sku: skus[1], quantity: 1, operationId })),
        ]);
        return answers.map((answer) =>
          answer.status === "fulfilled" ? answer.value.outcome : answer.reason.code,
        );
      });
      for (const outcomes of await Promise.all(singles)) {
        expect(outcomes.sort()).toEqual(["OPERATION_CONFLICT", "applied"]);
      }
      const orders = ids.slice(10).map((operationId) => ({ operationId, quantity: 1 }));
      const batches = await Promise.all([
        known(() => one.inventory.decrementMany({ sku: skus[0], orders })),
        known(() => two.inventory.decrementMany({ sku: skus[1], orders: orders.toReversed() })),
      ]);
      const applied = batches.flat().filter(({ outcome }) => outcome === "applied");
      expect(applied).toHaveLength(70);
      expect(new Set(applied.map(({ operationId }) => operationId)).size).toBe(70);
      const left = await Promise.all(skus.map((sku) => suite.inventory.get(sku)));
      expect((left[0]?.onHand ?? 0) + (left[1]?.onHand ?? 0)).toBe(400 - 80);
      for (const sku of skus) await expectConservation(sku);
      for (const { locks: own } of [one, two]) await own.close();
    });

    test("an invalid quantity, sku, id or expiry is refused before any request", async () => {
      const sku = await stocked(9);
      const bad = [
        0,
        -1,
        1.5,
        Number.NaN,
        Number.POSITIVE_INFINITY,
        2 ** 53,
        1e308,
        MAX_QUANTITY + 1,
      ];
      for (const quantity of bad) {
        const change = { sku, quantity, operationId: `${sku}/bad` };
        await expect(suite.inventory.decrement(change)).rejects.toThrow(RangeError);
        await expect(suite.inventory.restock(change)).rejects.toThrow(RangeError);
        await expect(suite.inventory.reserve({ ...change, expiresIn: 1_000 })).rejects.toThrow(
          RangeError,
        );
      }
      for (const quantity of ["1", 1n, null, undefined, [1], {}]) {
        const change = { sku, quantity, operationId: `${sku}/bad` } as unknown as QuantityChange;
        await expect(suite.inventory.decrement(change)).rejects.toThrow(TypeError);
      }
      for (const nothing of [undefined, null, sku] as never[]) {
        await expect(suite.inventory.decrement(nothing)).rejects.toThrow(
          /^the argument of decrement must be { sku/,
        );
      }
      const batch = [
        { sku, orders: undefined },
        [{ sku, quantity: 1, operationId: "a" }],
      ] as never[];
      for (const wrong of batch) {
        await expect(suite.inventory.decrementMany(wrong)).rejects.toThrow(
          /^orders must be a list/,
        );
      }
      for (const id of ["", "a\0b", "x".repeat(256), "\ud800"]) {
        await expect(
          suite.inventory.decrement({ sku, quantity: 1, operationId: id }),
        ).rejects.toThrow(RangeError);
        await expect(
          suite.inventory.decrement({ sku: id, quantity: 1, operationId: "x" }),
        ).rejects.toThrow(RangeError);
      }
      const reservation = { sku, quantity: 1, operationId: "x" };
      for (const expiresIn of [0, -1, Number.NaN, Number.POSITIVE_INFINITY, "5"] as number[]) {
        await expect(suite.inventory.reserve({ ...reservation, expiresIn })).rejects.toThrow();
      }
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 9, supplied: 9 });
      expect(await suite.inventory.history(sku)).toHaveLength(1);
    });

    test("skus and operation ids are compared byte for byte", async () => {
      const ids = ["a", "A", "a ", "a%", "a_", "á", "a\u0301", "a'b", 'a"', "a\\", "🫖", "\ufeffa"];
      for (const [i, id] of ids.entries()) {
        await suite.inventory.set({ sku: id, quantity: i + 1, operationId: `set ${id}` });
      }
      for (const [i, id] of ids.entries()) {
        const answer = await suite.inventory.decrement({
          sku: id,
          quantity: 1,
          operationId: `take ${id}`,
        });
        expect(answer).toEqual({ outcome: "applied", remaining: i, replayed: false });
      }
      for (const [i, id] of ids.entries()) {
        expect(await suite.inventory.get(id)).toMatchObject({ sku: id, onHand: i });
        expect((await suite.inventory.history(id))[0]?.operationId).toBe(`take ${id}`);
      }
    });
  });
}

/** Aborted changes: rejected only if not applied, unknown otherwise. */
export function describeAborts(suite: InventorySuite): void {
  const { stocked, expectConservation } = suite;

  describe("aborted changes", () => {
    test("a decrement whose caller has aborted before is not applied, also beside others", async () => {
      const sku = await stocked(9);
      const sell = (n: number, signal?: AbortSignal) =>
        suite.inventory.decrement({ sku, quantity: 1, operationId: `${sku}/${n}`, signal });
      const [first, aborted, last] = [sell(1), sell(2, AbortSignal.abort("enough")), sell(3)];
      await expect(aborted).rejects.toBe("enough");
      await Promise.all([first, last]);
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 7, sold: 2 });
    });

    test("an aborted decrement that is still queued is never applied and rejects with the caller's reason", async () => {
      const sku = await stocked(9);
      const selling = suite.inventory.decrement({ sku, quantity: 1, operationId: `${sku}/first` });
      const reasons = [new Error("enough"), "enough", null];
      const aborted = reasons.flatMap((reason) => {
        const caller = new AbortController();
        const operationId = `${sku}/${reason}`;
        const change = { sku, quantity: 1, operationId, signal: caller.signal };
        const waiting = suite.inventory.decrement(change);
        caller.abort(reason);
        return [waiting, suite.inventory.restock(change)];
      });
      const outcomes = await Promise.allSettled(aborted);
      expect(outcomes).toEqual(
        reasons.flatMap((reason) => Array(2).fill({ status: "rejected", reason })),
      );
      await selling;
      await suite.inventory.decrement({ sku, quantity: 1, operationId: `${sku}/last` });
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 7, sold: 2 });
      expect(await suite.inventory.history(sku)).toHaveLength(3);
    });

    test("an aborted decrement that was sent has an unknown outcome, and a second call applies it once", async () => {
      const sku = await stocked(9);
      const caller = new AbortController();
      const change = { sku, quantity: 1, operationId: `${sku}/1` };
      const selling = suite.inventory.decrement({ ...change, signal: caller.signal });
      caller.abort(null);
      await expect(selling).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
      expect(await suite.inventory.decrement(change)).toMatchObject({ outcome: "applied" });
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 8, sold: 1 });
    });

    test("a change aborted after any number of microtasks rejects with its reason only if it is not applied", async () => {
      const sku = await stocked(1_000);
      const { inventory: own, locks: ownLocks } = suite.underTest.open();
      const kinds = ["restock", "reserve", "decrement", "set"] as const;
      for (let step = 0; step < 60; step += 1) {
        for (const kind of kinds) {
          const change = { sku, quantity: 1, operationId: `${sku}/${kind}/${step}` };
          const given = { ...change, expiresIn: 3_600_000 };
          const caller = new AbortController();
          const changing = own[kind]({ ...given, signal: caller.signal }).catch((error) => error);
          for (let turn = 0; turn < step; turn += 1) await Promise.resolve();
          caller.abort("enough");
          const outcome = await changing;
          if (outcome instanceof Error) expect(outcome).toMatchObject({ code: "UNKNOWN_OUTCOME" });
          if (outcome === "enough") {
            const [last] = await own.history(sku, { limit: 1 });
            expect(last?.operationId).not.toBe(change.operationId);
          }
          await own[kind](given);
        }
      }
      await expectConservation(sku);
      await ownLocks.close();
    });

    test("a change aborted at any moment rejects with its reason only if it is not applied", async () => {
      const sku = await stocked(1_000);
      const { inventory: own, locks: ownLocks } = suite.underTest.open();
      let sold = 0;
      for (let i = 0; i < 40; i += 1) {
        const caller = new AbortController();
        const reason = [null, "enough", new Error("enough")][i % 3];
        const change = (name: string) => ({
          sku,
          quantity: 1,
          operationId: `${sku}/${i}/${name}`,
        });
        const calls = [
          suite.inventory.decrement({ ...change("a"), signal: caller.signal }),
          suite.inventory.decrement({ ...change("b"), signal: caller.signal }),
          own.decrement({ ...change("c"), signal: caller.signal }),
          own.restock({ ...change("d"), signal: caller.signal }),
          own.decrementMany({ sku, orders: [change("e")], signal: caller.signal }),
        ];
        const outcomes = Promise.allSettled(calls);
        await pause(i % 8);
        caller.abort(reason);
        const notDone = (await outcomes).flatMap((outcome, call) => {
          if (outcome.status === "fulfilled") return [];
          if (outcome.reason === reason) return [`${sku}/${i}/${"abcde"[call]}`];
          expect(outcome.reason).toMatchObject({ code: "UNKNOWN_OUTCOME" });
          return [];
        });
        const recorded = await own.history(sku, { limit: 10 });
        for (const { operationId } of recorded) expect(notDone).not.toContain(operationId);
        // The second calls queue behind the first ones, some of which may still run.
        for (const name of "abce") {
          await suite.inventory.decrement(change(name));
          sold += 1;
        }
        await suite.inventory.restock(change("d"));
      }
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 1_040 - sold, sold });
      await expectConservation(sku);
      await ownLocks.close();
    }, 240_000);
  });
}
