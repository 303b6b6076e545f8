import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type Answer,
  type Inventory,
  MOST_UNITS,
  type QuantityChange,
  stockLock,
} from "../../core/inventory/inventory.ts";
import type { Fence } from "../../core/lock/fence.ts";
import { openFence, sealFence } from "../../core/lock/fence.ts";
import type { Lock, LockStore } from "../../core/lock/lock.ts";
import { memoryStore } from "../../core/stores/memory/index.ts";
import { pause } from "../support/until.ts";

/** An inventory as the conformance suite takes it. */
export interface InventoryUnderTest {
  /** Another client of the same inventory. */
  open(): { readonly inventory: Inventory; readonly locks: LockStore };

  /** Whether a fence counts only as long as its lock is held. */
  readonly fencedByLock: boolean;

  /** After how many milliseconds a reservation for so many has certainly expired. */
  expiredAfter(expiresIn: number): number;
  close(): Promise<void>;
}

let skus = 0;

/** Every property that stock here must have, on one database. */
export function describeInventory(name: string, make: () => Promise<InventoryUnderTest>): void {
  describe(`stock on ${name}`, () => {
    let underTest: InventoryUnderTest;
    let inventory: Inventory;
    let locks: LockStore;

    beforeAll(async () => {
      underTest = await make();
      ({ inventory, locks } = underTest.open());
    });

    afterAll(() => underTest.close());

    /** A sku with so many units. */
    const stocked = async (quantity: number): Promise<string> => {
      skus += 1;
      const sku = `sku-${process.pid}-${skus}`;
      await inventory.set({ sku, quantity, operationId: `${sku}/set` });
      return sku;
    };

    const holding = (sku: string) => locks.lock(stockLock(sku), { ttl: 20_000, wait: 20_000 });

    /** The fence of a lock that is taken from its holder, and the lock of the next one. */
    const succeeded = async (
      lock: Lock,
    ): Promise<{ readonly late: Fence; readonly next: Lock }> => {
      await lock.unlock();
      return { late: lock.fence, next: await locks.lock(lock.name, { ttl: 20_000, wait: 20_000 }) };
    };

    const untilExpired = (expiresIn: number) => pause(underTest.expiredAfter(expiresIn));

    /** That the books add up, entry by entry, and no operation stands in them twice. */
    const expectConservation = async (sku: string): Promise<void> => {
      const stock = await inventory.get(sku);
      const entries = [...(await inventory.history(sku, { limit: 10_000 }))].reverse();
      expect(stock).toBeDefined();
      if (!stock) return;
      expect(stock.supplied).toBe(stock.onHand + stock.reserved + stock.sold);
      let onHand = 0;
      let sold = 0;
      const reserved = new Map<string, number>();
      for (const { kind, outcome, quantity, remaining, operationId, reservation = "" } of entries) {
        if (outcome === "applied") {
          if (kind === "set") onHand = quantity;
          if (kind === "restock") onHand += quantity;
          if (kind === "decrement" || kind === "reserve") onHand -= quantity;
          if (kind === "decrement" || kind === "confirm") sold += quantity;
          if (kind === "cancel") onHand += quantity;
          if (kind === "reserve") reserved.set(operationId ?? "", quantity);
          if (kind === "expire") onHand += quantity;
          if (["confirm", "cancel", "expire"].includes(kind)) reserved.delete(reservation);
        }
        expect(onHand).toBeGreaterThanOrEqual(0);
        // Reservations that expire together are put back in one step.
        if (kind !== "expire") expect(remaining).toBe(onHand);
      }
      expect(stock).toMatchObject({ onHand, sold });
      expect(stock.reserved).toBe([...reserved.values()].reduce((sum, units) => sum + units, 0));
      const ids = entries.flatMap(({ operationId }) => operationId ?? []);
      expect(new Set(ids).size).toBe(ids.length);
    };

    describe("a decrement", () => {
      test("takes what is there, and says what is left", async () => {
        const sku = await stocked(5);
        expect(await inventory.decrement({ sku, quantity: 3, operationId: `${sku}/1` })).toEqual({
          outcome: "applied",
          remaining: 2,
          replayed: false,
        });
        expect(await inventory.decrement({ sku, quantity: 2, operationId: `${sku}/2` })).toEqual({
          outcome: "applied",
          remaining: 0,
          replayed: false,
        });
        await expectConservation(sku);
      });

      test("of more than there is changes nothing", async () => {
        const sku = await stocked(5);
        const change = { sku, quantity: 6, operationId: `${sku}/1` };
        const answer = { outcome: "sold-out", remaining: 5, replayed: false };
        expect(await inventory.decrement(change)).toEqual(answer);
        await inventory.restock({ sku, quantity: 5, operationId: `${sku}/2` });
        // The same order has the same answer, although there would be enough now.
        expect(await inventory.decrement(change)).toEqual({ ...answer, replayed: true });
        await expectConservation(sku);
      });

      test("by 32 clients at once never oversells, and every duplicate has the first one's answer", async () => {
        const sku = await stocked(100);
        const clients = Array.from({ length: 8 }, () => underTest.open());
        const answers = new Map<string, Answer[]>();
        const buyer = async (number: number) => {
          const { inventory: own } = clients[number % clients.length] ?? underTest.open();
          for (let order = 0; order < 8; order += 1) {
            const operationId = `${sku}/${(number * 5 + order) % 160}`;
            const answer = await own.decrement({ sku, quantity: 1, operationId });
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
          expect(all.filter(({ replayed }) => !replayed).length).toBe(1);
        }
        expect(await inventory.get(sku)).toMatchObject({ onHand: 0, sold: 100, supplied: 100 });
        await expectConservation(sku);
        for (const client of clients) await client.locks.close();
      }, 60_000);

      test("of an unknown sku is an error, and leaves no trace", async () => {
        const change = { sku: "no such sku", quantity: 1, operationId: "unknown/1" };
        await expect(inventory.decrement(change)).rejects.toMatchObject({ code: "UNKNOWN_SKU" });
        expect(await inventory.get("no such sku")).toBeUndefined();
        expect(await inventory.history("no such sku")).toEqual([]);
        const sku = await stocked(1);
        expect(await inventory.decrement({ ...change, sku })).toMatchObject({ outcome: "applied" });
      });

      test("under an operation id that was used for something else is refused", async () => {
        const [sku, other] = [await stocked(9), await stocked(9)];
        const change = { sku, quantity: 1, operationId: `${sku}/1` };
        await inventory.decrement(change);
        const conflict = { code: "OPERATION_CONFLICT" };
        await expect(inventory.decrement({ ...change, quantity: 2 })).rejects.toMatchObject(
          conflict,
        );
        await expect(inventory.decrement({ ...change, sku: other })).rejects.toMatchObject(
          conflict,
        );
        await expect(inventory.restock(change)).rejects.toMatchObject(conflict);
        await expect(inventory.reserve({ ...change, expiresIn: 1_000 })).rejects.toMatchObject(
          conflict,
        );
        await expect(inventory.set(change)).rejects.toMatchObject(conflict);
        expect(await inventory.get(sku)).toMatchObject({ onHand: 8 });
        expect(await inventory.get(other)).toMatchObject({ onHand: 9 });
      });

      test("under one operation id for two skus at once is done for one of them", async () => {
        const skus = [await stocked(200), await stocked(200)] as const;
        const [one, two] = [underTest.open(), underTest.open()];
        const ids = Array.from({ length: 80 }, (_, i) => `${skus[0]}/both/${i}`);
        const singles = ids.slice(0, 10).map(async (operationId) => {
          const answers = await Promise.allSettled([
            one.inventory.decrement({ sku: skus[0], quantity: 1, operationId }),
            two.inventory.decrement({ sku: skus[1], quantity: 1, operationId }),
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
          one.inventory.decrementMany({ sku: skus[0], orders }),
          two.inventory.decrementMany({ sku: skus[1], orders: orders.toReversed() }),
        ]);
        const applied = batches.flat().filter(({ outcome }) => outcome === "applied");
        expect(applied).toHaveLength(70);
        expect(new Set(applied.map(({ operationId }) => operationId)).size).toBe(70);
        const left = await Promise.all(skus.map((sku) => inventory.get(sku)));
        expect((left[0]?.onHand ?? 0) + (left[1]?.onHand ?? 0)).toBe(400 - 80);
        for (const sku of skus) await expectConservation(sku);
        for (const { locks: own } of [one, two]) await own.close();
      });

      test("of anything but a sensible quantity is refused before anything is asked", async () => {
        const sku = await stocked(9);
        const bad = [
          0,
          -1,
          1.5,
          Number.NaN,
          Number.POSITIVE_INFINITY,
          2 ** 53,
          1e308,
          MOST_UNITS + 1,
        ];
        for (const quantity of bad) {
          const change = { sku, quantity, operationId: `${sku}/bad` };
          await expect(inventory.decrement(change)).rejects.toThrow(RangeError);
          await expect(inventory.restock(change)).rejects.toThrow(RangeError);
          await expect(inventory.reserve({ ...change, expiresIn: 1_000 })).rejects.toThrow(
            RangeError,
          );
        }
        for (const quantity of ["1", 1n, null, undefined, [1], {}]) {
          const change = { sku, quantity, operationId: `${sku}/bad` } as unknown as QuantityChange;
          await expect(inventory.decrement(change)).rejects.toThrow(TypeError);
        }
        for (const id of ["", "a\0b", "x".repeat(256), "\ud800"]) {
          await expect(inventory.decrement({ sku, quantity: 1, operationId: id })).rejects.toThrow(
            RangeError,
          );
          await expect(
            inventory.decrement({ sku: id, quantity: 1, operationId: "x" }),
          ).rejects.toThrow(RangeError);
        }
        const reservation = { sku, quantity: 1, operationId: "x" };
        for (const expiresIn of [0, -1, Number.NaN, Number.POSITIVE_INFINITY, "5"] as number[]) {
          await expect(inventory.reserve({ ...reservation, expiresIn })).rejects.toThrow();
        }
        expect(await inventory.get(sku)).toMatchObject({ onHand: 9, supplied: 9 });
        expect(await inventory.history(sku)).toHaveLength(1);
      });

      test("knows skus and operation ids byte for byte", async () => {
        const ids = [
          "a",
          "A",
          "a ",
          "a%",
          "a_",
          "á",
          "a\u0301",
          "a'b",
          'a"',
          "a\\",
          "🫖",
          "\ufeffa",
        ];
        for (const [i, id] of ids.entries()) {
          await inventory.set({ sku: id, quantity: i + 1, operationId: `set ${id}` });
        }
        for (const [i, id] of ids.entries()) {
          const answer = await inventory.decrement({
            sku: id,
            quantity: 1,
            operationId: `take ${id}`,
          });
          expect(answer).toEqual({ outcome: "applied", remaining: i, replayed: false });
        }
        for (const [i, id] of ids.entries()) {
          expect(await inventory.get(id)).toMatchObject({ sku: id, onHand: i });
          expect((await inventory.history(id))[0]?.operationId).toBe(`take ${id}`);
        }
      });
    });

    describe("an aborted change", () => {
      test("that still waits for another one is never done, and rejects with the caller's reason", async () => {
        const sku = await stocked(9);
        const selling = inventory.decrement({ sku, quantity: 1, operationId: `${sku}/first` });
        const reasons = [new Error("enough"), "enough", null];
        const aborted = reasons.flatMap((reason) => {
          const caller = new AbortController();
          const operationId = `${sku}/${reason}`;
          const change = { sku, quantity: 1, operationId, signal: caller.signal };
          const waiting = inventory.decrement(change);
          caller.abort(reason);
          return [waiting, inventory.restock(change)];
        });
        const outcomes = await Promise.allSettled(aborted);
        expect(outcomes).toEqual(
          reasons.flatMap((reason) => Array(2).fill({ status: "rejected", reason })),
        );
        await selling;
        await inventory.decrement({ sku, quantity: 1, operationId: `${sku}/last` });
        expect(await inventory.get(sku)).toMatchObject({ onHand: 7, sold: 2 });
        expect(await inventory.history(sku)).toHaveLength(3);
      });

      test("that is under way may be done or not, and is done once when it is asked for again", async () => {
        const sku = await stocked(9);
        const caller = new AbortController();
        const change = { sku, quantity: 1, operationId: `${sku}/1` };
        const selling = inventory.decrement({ ...change, signal: caller.signal });
        caller.abort(null);
        await expect(selling).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
        expect(await inventory.decrement(change)).toMatchObject({ outcome: "applied" });
        expect(await inventory.get(sku)).toMatchObject({ onHand: 8, sold: 1 });
      });

      test("at whatever moment rejects with its reason only if it is not done", async () => {
        const sku = await stocked(1_000);
        const { inventory: own, locks: ownLocks } = underTest.open();
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
            inventory.decrement({ ...change("a"), signal: caller.signal }),
            inventory.decrement({ ...change("b"), signal: caller.signal }),
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
          // Asked for again behind whatever may still be under way.
          for (const name of "abce") {
            const { replayed } = await inventory.decrement(change(name));
            if (notDone.includes(`${sku}/${i}/${name}`)) expect(replayed).toBe(false);
            sold += 1;
          }
          await inventory.restock(change("d"));
        }
        expect(await inventory.get(sku)).toMatchObject({ onHand: 1_040 - sold, sold });
        await expectConservation(sku);
        await ownLocks.close();
      }, 60_000);
    });

    describe("a fence", () => {
      test("lets its holder work, again and again", async () => {
        const sku = await stocked(5);
        await using lock = await holding(sku);
        const { fence } = lock;
        for (const order of [1, 2, 3]) {
          const change = { sku, quantity: 1, operationId: `${sku}/${order}`, fence };
          expect(await inventory.decrement(change)).toMatchObject({ outcome: "applied" });
        }
        expect((await inventory.history(sku))[0]?.fence).toBe(String(fence));
      });

      test("of a lock that was given back counts until a successor comes, or no longer", async () => {
        const sku = await stocked(5);
        const lock = await holding(sku);
        const { fence } = lock;
        const at = (order: number) => ({ sku, quantity: 1, operationId: `${sku}/${order}`, fence });
        await inventory.decrement(at(1));
        await lock.unlock();
        const orders = [{ operationId: `${sku}/4`, quantity: 1 }];
        const changes = [
          () => inventory.decrement(at(2)),
          () => inventory.restock(at(3)),
          () => inventory.decrementMany({ sku, orders, fence }),
          () => inventory.claim(fence),
        ];
        const refused = { code: "FENCED_OUT", presented: fence, current: String(fence) };
        for (const change of changes) {
          if (underTest.fencedByLock) await expect(change()).rejects.toMatchObject(refused);
          else await change();
        }
        const onHand = underTest.fencedByLock ? 4 : 3;
        expect(await inventory.get(sku)).toMatchObject({ onHand });
        expect(await inventory.decrement(at(1))).toMatchObject({ replayed: true });
      });

      test("refuses a late holder once its successor has touched the sku, and changes nothing", async () => {
        const sku = await stocked(5);
        const first = await holding(sku);
        const at = (order: number, fence: Fence) => ({
          sku,
          quantity: 1,
          operationId: `${sku}/${order}`,
          fence,
        });
        expect(await inventory.decrement(at(1, first.fence))).toMatchObject({ outcome: "applied" });
        const { late, next } = await succeeded(first);
        const current = next.fence;
        await inventory.claim(current);
        const refused = { code: "FENCED_OUT", presented: late, current: String(current) };
        await expect(inventory.decrement(at(2, late))).rejects.toMatchObject(refused);
        await expect(inventory.restock(at(3, late))).rejects.toMatchObject(refused);
        await expect(inventory.set(at(4, late))).rejects.toMatchObject(refused);
        await expect(inventory.reserve({ ...at(5, late), expiresIn: 1_000 })).rejects.toMatchObject(
          refused,
        );
        await expect(
          inventory.decrementMany({
            sku,
            fence: late,
            orders: [{ operationId: `${sku}/6`, quantity: 1 }],
          }),
        ).rejects.toMatchObject(refused);
        await expect(inventory.claim(late)).rejects.toMatchObject(refused);
        expect(await inventory.get(sku)).toMatchObject({ onHand: 4, supplied: 5 });
        // What was refused was never done, so its operation id is still free.
        expect(await inventory.decrement(at(2, current))).toMatchObject({ outcome: "applied" });
        // What was done before keeps its answer, late or not.
        expect(await inventory.decrement(at(1, late))).toMatchObject({ replayed: true });
        await expectConservation(sku);
        await next.unlock();
      });

      test("claims the sku even with a change that was done before", async () => {
        const sku = await stocked(5);
        // Not of a lock in etcd, whose going would be enough.
        await using store = memoryStore();
        const locked = () => store.lock(stockLock(sku), { ttl: 20_000, wait: 0 });
        const first = await locked();
        const done = { sku, quantity: 1, operationId: `${sku}/1`, fence: first.fence };
        await inventory.decrement(done);
        await first.unlock();
        const { fence } = await locked();
        expect(await inventory.decrement({ ...done, fence })).toMatchObject({ replayed: true });
        await expect(
          inventory.decrement({ ...done, operationId: `${sku}/2` }),
        ).rejects.toMatchObject({ code: "FENCED_OUT", current: String(fence) });
        expect(await inventory.get(sku)).toMatchObject({ onHand: 4 });
      });

      test("refuses a late holder's confirm and cancel too", async () => {
        const sku = await stocked(5);
        const { late, next } = await succeeded(await holding(sku));
        const reservation = `${sku}/r`;
        await inventory.reserve({
          sku,
          quantity: 2,
          operationId: reservation,
          expiresIn: 60_000,
          fence: next.fence,
        });
        const closing = { sku, reservation, fence: late };
        const refused = { code: "FENCED_OUT" };
        await expect(
          inventory.confirm({ ...closing, operationId: `${sku}/c` }),
        ).rejects.toMatchObject(refused);
        await expect(
          inventory.cancel({ ...closing, operationId: `${sku}/d` }),
        ).rejects.toMatchObject(refused);
        expect(await inventory.get(sku)).toMatchObject({ onHand: 3, reserved: 2 });
        await next.unlock();
      });

      test("that is forged, of the future, or of another resource counts for nothing", async () => {
        const [sku, other] = [await stocked(5), await stocked(5)];
        await using lock = await holding(sku);
        await using otherLock = await holding(other);
        const { fence } = lock;
        const foreign = otherLock.fence;
        const Issued = fence.constructor as new (...parts: unknown[]) => Fence;
        const forged = [
          new Issued(stockLock(sku), 0, 2n ** 40n - 1n, "x"),
          { ...fence, token: 2n ** 63n - 1n },
          { ...fence, generation: 2 ** 23 - 1 },
          { resource: stockLock(sku), generation: 0, token: 2n ** 63n - 1n },
          { ...fence },
          foreign,
        ] as Fence[];
        for (const one of forged) {
          const change = { sku, quantity: 1, operationId: `${sku}/forged`, fence: one };
          await expect(inventory.decrement(change)).rejects.toMatchObject({
            code: "FENCE_INVALID",
          });
          await expect(
            inventory.decrementMany({
              sku,
              fence: one,
              orders: [{ operationId: "x", quantity: 1 }],
            }),
          ).rejects.toMatchObject({ code: "FENCE_INVALID" });
        }
        await expect(inventory.claim(forged[0] as Fence)).rejects.toMatchObject({
          code: "FENCE_INVALID",
        });
        // Nobody was locked out by it.
        const change = { sku, quantity: 1, operationId: `${sku}/1`, fence };
        expect(await inventory.decrement(change)).toMatchObject({ outcome: "applied" });
        expect(await inventory.get(sku)).toMatchObject({ onHand: 4 });
      });

      test("of a higher generation is above every token of a lower one", async () => {
        const sku = await stocked(5);
        await using lock = await holding(sku);
        const old = lock.fence;
        // The locks' own store was lost, and started again.
        const restarted = memoryStore();
        await restarted.raiseGeneration(old.generation + 1);
        const { fence } = await restarted.lock(stockLock(sku), { ttl: 1_000, wait: 0 });
        const change = { sku, quantity: 1, operationId: `${sku}/1`, fence };
        expect(await inventory.decrement(change)).toMatchObject({ outcome: "applied" });
        await expect(
          inventory.decrement({ ...change, operationId: `${sku}/2`, fence: old }),
        ).rejects.toMatchObject({ code: "FENCED_OUT" });
        await restarted.close();
      });

      test("equal to that of another holder is refused, whoever of the two comes second", async () => {
        const sku = await stocked(9);
        // Two servers that count alike: a primary, and the replica that was promoted without the last lock.
        const servers = [memoryStore(), memoryStore()];
        const [first, second] = await Promise.all(
          servers.map((store) => store.lock(stockLock(sku), { ttl: 20_000, wait: 0 })),
        );
        if (!first || !second) throw new Error("both have it");
        const { fence } = second;
        expect(String(fence)).toBe(String(first.fence));
        const at = (order: number, by: Fence) => ({
          sku,
          quantity: 1,
          operationId: `${sku}/${order}`,
          fence: by,
        });
        expect(await inventory.decrement(at(1, first.fence))).toMatchObject({ outcome: "applied" });
        const orders = [{ quantity: 1, operationId: `${sku}/2` }];
        const changes = [
          () => inventory.decrement(at(3, fence)),
          () => inventory.restock(at(4, fence)),
          () => inventory.decrementMany({ sku, orders, fence }),
          () => inventory.claim(fence),
        ];
        const message = expect.stringMatching(/^another holder came .* first/);
        const refused = { code: "FENCED_OUT", presented: fence, current: String(fence), message };
        for (const change of changes) await expect(change()).rejects.toMatchObject(refused);
        expect(await inventory.decrement(at(5, first.fence))).toMatchObject({ outcome: "applied" });
        await inventory.claim(first.fence);
        expect(await inventory.get(sku)).toMatchObject({ onHand: 7 });
        await Promise.all(servers.map((store) => store.close()));
      });

      test("that was sealed is as good as the lock's own", async () => {
        const sku = await stocked(5);
        const lock = await holding(sku);
        const secret = "a secret of more than 16 bytes";
        const fence = await openFence(await sealFence(lock.fence, secret), secret);
        const change = { sku, quantity: 1, operationId: `${sku}/1`, fence };
        expect(await inventory.decrement(change)).toMatchObject({ outcome: "applied" });
        await lock.unlock();
      });
    });

    describe("a batch", () => {
      test("serves orders in their order, each as if it came alone", async () => {
        const sku = await stocked(10);
        const lock = await holding(sku);
        const order = (id: string, quantity: number) => ({ operationId: `${sku}/${id}`, quantity });
        await inventory.decrement({ sku, ...order("before", 1) });
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
          (await inventory.decrementMany(batch)).map(({ outcome, replayed }) => [
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
        expect(await inventory.get(sku)).toMatchObject({ onHand: 0, sold: 10 });
        await expectConservation(sku);
        await lock.unlock();
      });

      test("is exact among other batches and single orders of many clients", async () => {
        const sku = await stocked(200);
        const clients = Array.from({ length: 6 }, () => underTest.open());
        let sold = 0;
        await Promise.all(
          clients.map(async ({ inventory: own }, client) => {
            for (let round = 0; round < 10; round += 1) {
              const orders = Array.from({ length: 5 }, (_, i) => ({
                operationId: `${sku}/${client}/${round}/${i}`,
                quantity: 1,
              }));
              for (const { outcome } of await own.decrementMany({ sku, orders })) {
                if (outcome === "applied") sold += 1;
              }
              const single = { sku, quantity: 1, operationId: `${sku}/${client}/${round}` };
              if ((await own.decrement(single)).outcome === "applied") sold += 1;
            }
          }),
        );
        expect(sold).toBe(200);
        expect(await inventory.get(sku)).toMatchObject({ onHand: 0, sold: 200 });
        await expectConservation(sku);
        for (const client of clients) await client.locks.close();
      }, 60_000);

      test("of 1,000 is one step, and its entries are read page by page", async () => {
        const sku = await stocked(900);
        const orders = Array.from({ length: 1_000 }, (_, i) => ({
          operationId: `${sku}/${"x".repeat(230)}/${i}`,
          quantity: 1,
        }));
        const answers = await inventory.decrementMany({ sku, orders });
        expect(answers.map(({ outcome }) => outcome)).toEqual(
          orders.map((_, i) => (i < 900 ? "applied" : "sold-out")),
        );
        const again = await inventory.decrementMany({ sku, orders });
        expect(again).toEqual(answers.map((answer) => ({ ...answer, replayed: true })));
        const page = await inventory.history(sku, { limit: 130, before: 950 });
        expect(page.map(({ seq }) => seq)).toEqual(Array.from({ length: 130 }, (_, i) => 949 - i));
        await expectConservation(sku);
      });

      test("of none, of too many, or for an unknown sku is refused", async () => {
        const sku = await stocked(1);
        await expect(inventory.decrementMany({ sku, orders: [] })).rejects.toThrow(RangeError);
        const orders = Array.from({ length: 1_001 }, (_, i) => ({
          operationId: `${i}`,
          quantity: 1,
        }));
        await expect(inventory.decrementMany({ sku, orders })).rejects.toThrow(RangeError);
        const one = [{ operationId: `${sku}/x`, quantity: 1 }];
        await expect(
          inventory.decrementMany({ sku: "no such sku", orders: one }),
        ).rejects.toMatchObject({ code: "UNKNOWN_SKU" });
      });
    });

    describe("a reservation", () => {
      test("sets units aside until it is confirmed", async () => {
        const sku = await stocked(5);
        const reservation = `${sku}/r`;
        const reserving = { sku, quantity: 3, operationId: reservation, expiresIn: 60_000 };
        expect(await inventory.reserve(reserving)).toMatchObject({
          outcome: "applied",
          remaining: 2,
        });
        expect(await inventory.reserve(reserving)).toMatchObject({ replayed: true, remaining: 2 });
        expect(await inventory.get(sku)).toMatchObject({ onHand: 2, reserved: 3, sold: 0 });
        const closing = { sku, reservation, operationId: `${sku}/c` };
        expect(await inventory.confirm(closing)).toMatchObject({
          outcome: "applied",
          replayed: false,
        });
        expect(await inventory.confirm(closing)).toMatchObject({
          outcome: "applied",
          replayed: true,
        });
        expect(await inventory.get(sku)).toMatchObject({ onHand: 2, reserved: 0, sold: 3 });
        const again = { sku, reservation, operationId: `${sku}/c2` };
        expect(await inventory.confirm(again)).toMatchObject({ outcome: "closed" });
        expect(await inventory.cancel({ ...again, operationId: `${sku}/c3` })).toMatchObject({
          outcome: "closed",
        });
        // A late duplicate of the reservation itself opens nothing again.
        await inventory.reserve(reserving);
        expect(await inventory.cancel({ ...again, operationId: `${sku}/c4` })).toMatchObject({
          outcome: "closed",
        });
        expect(await inventory.get(sku)).toMatchObject({ onHand: 2, reserved: 0, sold: 3 });
        await expectConservation(sku);
      });

      test("goes back on hand when it is cancelled, once", async () => {
        const sku = await stocked(5);
        const reservation = `${sku}/r`;
        await inventory.reserve({ sku, quantity: 3, operationId: reservation, expiresIn: 60_000 });
        const closing = { sku, reservation, operationId: `${sku}/c` };
        expect(await inventory.cancel(closing)).toMatchObject({ outcome: "applied", remaining: 5 });
        expect(await inventory.cancel(closing)).toMatchObject({ replayed: true });
        expect(await inventory.get(sku)).toMatchObject({ onHand: 5, reserved: 0, sold: 0 });
        await expectConservation(sku);
      });

      test("expires: it cannot be confirmed, and its units are sold to others", async () => {
        const sku = await stocked(5);
        const reservation = `${sku}/r`;
        await inventory.reserve({ sku, quantity: 3, operationId: reservation, expiresIn: 100 });
        await inventory.reserve({ sku, quantity: 1, operationId: `${sku}/r2`, expiresIn: 100 });
        expect(
          await inventory.decrement({ sku, quantity: 2, operationId: `${sku}/1` }),
        ).toMatchObject({
          outcome: "sold-out",
        });
        await untilExpired(100);
        const confirming = { sku, reservation, operationId: `${sku}/c` };
        expect(await inventory.confirm(confirming)).toMatchObject({ outcome: "closed" });
        expect(
          await inventory.decrement({ sku, quantity: 5, operationId: `${sku}/2` }),
        ).toMatchObject({
          outcome: "applied",
          remaining: 0,
        });
        expect(await inventory.confirm(confirming)).toMatchObject({
          outcome: "closed",
          replayed: true,
        });
        expect(await inventory.get(sku)).toMatchObject({ onHand: 0, reserved: 0, sold: 5 });
        await expectConservation(sku);
      });

      test("that expired is put back by a batch that runs short, and by expire itself", async () => {
        const sku = await stocked(4);
        await inventory.reserve({ sku, quantity: 4, operationId: `${sku}/r`, expiresIn: 50 });
        await untilExpired(50);
        const orders = [{ operationId: `${sku}/1`, quantity: 2 }];
        expect(await inventory.decrementMany({ sku, orders })).toMatchObject([
          { outcome: "applied" },
        ]);
        await inventory.reserve({ sku, quantity: 2, operationId: `${sku}/r2`, expiresIn: 50 });
        await untilExpired(50);
        await inventory.restock({ sku, quantity: 1, operationId: `${sku}/2` });
        await inventory.reserve({ sku, quantity: 1, operationId: `${sku}/r3`, expiresIn: 60_000 });
        await inventory.expire(sku);
        await inventory.expire(sku);
        expect(await inventory.get(sku)).toMatchObject({ onHand: 2, reserved: 1, sold: 2 });
        await expectConservation(sku);
      });

      test("that never was is an error", async () => {
        const sku = await stocked(5);
        const closing = { sku, reservation: "no such reservation", operationId: `${sku}/c` };
        const unknown = { code: "UNKNOWN_RESERVATION" };
        await expect(inventory.confirm(closing)).rejects.toMatchObject(unknown);
        await expect(inventory.cancel(closing)).rejects.toMatchObject(unknown);
        // A decrement is no reservation, and a reservation that was sold out never was one.
        await inventory.decrement({ sku, quantity: 1, operationId: `${sku}/1` });
        await inventory.reserve({ sku, quantity: 9, operationId: `${sku}/2`, expiresIn: 1_000 });
        for (const reservation of [`${sku}/1`, `${sku}/2`]) {
          await expect(inventory.confirm({ ...closing, reservation })).rejects.toMatchObject(
            unknown,
          );
        }
      });

      test("is closed once, whatever confirms, cancels and expiries race for it", async () => {
        const sku = await stocked(60);
        const clients = Array.from({ length: 4 }, () => underTest.open().inventory);
        for (let i = 0; i < 20; i += 1) {
          const reservation = `${sku}/r${i}`;
          await inventory.reserve({ sku, quantity: 3, operationId: reservation, expiresIn: 8 });
          if (i % 2 === 0) await pause(i % 9);
          const answers = await Promise.all([
            clients[0]?.confirm({ sku, reservation, operationId: `${reservation}/a` }),
            clients[1]?.cancel({ sku, reservation, operationId: `${reservation}/b` }),
            clients[2]?.confirm({ sku, reservation, operationId: `${reservation}/a` }),
            clients[3]?.expire(sku),
          ]);
          const applied = answers.filter((answer) => answer?.outcome === "applied");
          const kinds = new Set(applied.map((answer) => answer === answers[1]));
          expect(kinds.size).toBeLessThanOrEqual(1);
        }
        await untilExpired(8);
        await inventory.expire(sku);
        expect(await inventory.get(sku)).toMatchObject({ reserved: 0, supplied: 60 });
        await expectConservation(sku);
      }, 60_000);
    });

    describe("the books", () => {
      test("take a new count, and keep adding up", async () => {
        const sku = await stocked(5);
        await inventory.decrement({ sku, quantity: 2, operationId: `${sku}/1` });
        await inventory.set({ sku, quantity: 0, operationId: `${sku}/2` });
        expect(await inventory.get(sku)).toMatchObject({ onHand: 0, sold: 2, supplied: 2 });
        await inventory.set({ sku, quantity: 7, operationId: `${sku}/3` });
        expect(await inventory.set({ sku, quantity: 7, operationId: `${sku}/3` })).toMatchObject({
          replayed: true,
        });
        expect(await inventory.get(sku)).toMatchObject({ onHand: 7, sold: 2, supplied: 9 });
        await expectConservation(sku);
      });

      test("are read newest first, page by page", async () => {
        const sku = await stocked(9);
        for (const order of [1, 2, 3]) {
          await inventory.decrement({ sku, quantity: order, operationId: `${sku}/${order}` });
        }
        const page = await inventory.history(sku, { limit: 2 });
        expect(page.map(({ quantity }) => quantity)).toEqual([3, 2]);
        const before = page[1]?.seq ?? 0;
        const rest = await inventory.history(sku, { before });
        expect(rest.map(({ kind, quantity }) => [kind, quantity])).toEqual([
          ["decrement", 1],
          ["set", 9],
        ]);
        expect(Math.abs(Date.now() - (page[0]?.at.getTime() ?? 0))).toBeLessThan(60_000);
        await expect(inventory.history(sku, { limit: 0 })).rejects.toThrow(RangeError);
      });

      test("survive 32 clients that do everything at once", async () => {
        const sku = await stocked(40);
        const clients = Array.from({ length: 8 }, () => underTest.open());
        const work = async (client: number) => {
          const own = clients[client % clients.length]?.inventory ?? inventory;
          for (let i = 0; i < 6; i += 1) {
            const id = `${sku}/${client % 16}/${i}`;
            const change = { sku, quantity: 1 + (client % 3) };
            if (i % 3 === 0) await own.decrement({ ...change, quantity: 1, operationId: id });
            if (i % 3 === 1) {
              await own.reserve({ ...change, quantity: 1, operationId: id, expiresIn: 5 + i * 10 });
              const closing = { sku, reservation: id, operationId: `${id}/close` };
              const close = client % 2 === 0 ? own.confirm : own.cancel;
              await close(closing).catch((error) => {
                expect(["UNKNOWN_RESERVATION", "OPERATION_CONFLICT"]).toContain(error.code);
              });
            }
            if (i % 3 === 2) await own.restock({ ...change, quantity: 1, operationId: id });
          }
        };
        await Promise.all(Array.from({ length: 32 }, (_, client) => work(client)));
        await untilExpired(55);
        await inventory.expire(sku);
        expect(await inventory.get(sku)).toMatchObject({ reserved: 0 });
        await expectConservation(sku);
        for (const client of clients) await client.locks.close();
      }, 60_000);
    });
  });
}
