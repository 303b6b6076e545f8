import { describe, expect, test } from "vitest";
import { stockLock } from "../../core/inventory/inventory.ts";
import { type Fence, openFence, sealFence } from "../../core/lock/fence.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import type { InventorySuite } from "./inventory-suite.ts";

/** Fences: a late holder changes nothing. */
export function describeFences(suite: InventorySuite): void {
  const { stocked, holding, succeeded, expectConservation } = suite;

  describe("fences at stock", () => {
    test("the holder of a fence can change the stock several times", async () => {
      const sku = await stocked(5);
      await using lock = await holding(sku);
      const { fence } = lock;
      for (const order of [1, 2, 3]) {
        const change = { sku, quantity: 1, operationId: `${sku}/${order}`, fence };
        expect(await suite.inventory.decrement(change)).toMatchObject({ outcome: "applied" });
      }
      expect((await suite.inventory.history(sku))[0]?.fence).toBe(String(fence));
    });

    test("the fence of a released lock is accepted until the next holder comes, or refused at once where locks and stock share a store", async () => {
      const sku = await stocked(5);
      const lock = await holding(sku);
      const { fence } = lock;
      const at = (order: number) => ({ sku, quantity: 1, operationId: `${sku}/${order}`, fence });
      await suite.inventory.decrement(at(1));
      await lock.unlock();
      const orders = [{ operationId: `${sku}/4`, quantity: 1 }];
      const changes = [
        () => suite.inventory.decrement(at(2)),
        () => suite.inventory.restock(at(3)),
        () => suite.inventory.decrementMany({ sku, orders, fence }),
        () => suite.inventory.claim(fence),
      ];
      const refused = { code: "FENCED_OUT", presented: fence, current: String(fence) };
      for (const change of changes) {
        if (suite.underTest.fencedByLock) await expect(change()).rejects.toMatchObject(refused);
        else await change();
      }
      const onHand = suite.underTest.fencedByLock ? 4 : 3;
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand });
      expect(await suite.inventory.decrement(at(1))).toMatchObject({ replayed: true });
    });

    test("a late holder is refused once the next holder has touched the sku, and changes nothing", async () => {
      const sku = await stocked(5);
      const first = await holding(sku);
      const at = (order: number, fence: Fence) => ({
        sku,
        quantity: 1,
        operationId: `${sku}/${order}`,
        fence,
      });
      expect(await suite.inventory.decrement(at(1, first.fence))).toMatchObject({
        outcome: "applied",
      });
      const { late, next } = await succeeded(first);
      const current = next.fence;
      await suite.inventory.claim(current);
      const cure = `lockstep raise-generation --at-least ${current.generation + 1}`;
      const message = expect.stringContaining(cure);
      const refused = { code: "FENCED_OUT", presented: late, current: String(current), message };
      await expect(suite.inventory.decrement(at(2, late))).rejects.toMatchObject(refused);
      await expect(suite.inventory.restock(at(3, late))).rejects.toMatchObject(refused);
      await expect(suite.inventory.set(at(4, late))).rejects.toMatchObject(refused);
      await expect(
        suite.inventory.reserve({ ...at(5, late), expiresIn: 1_000 }),
      ).rejects.toMatchObject(refused);
      await expect(
        suite.inventory.decrementMany({
          sku,
          fence: late,
          orders: [{ operationId: `${sku}/6`, quantity: 1 }],
        }),
      ).rejects.toMatchObject(refused);
      await expect(suite.inventory.claim(late)).rejects.toMatchObject(refused);
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 4, supplied: 5 });
      // A refused change is never applied, so its operation id is still free.
      expect(await suite.inventory.decrement(at(2, current))).toMatchObject({ outcome: "applied" });
      // An applied change keeps its result, whether its fence is late or not.
      expect(await suite.inventory.decrement(at(1, late))).toMatchObject({ replayed: true });
      const orders = [{ operationId: `${sku}/1`, quantity: 1 }];
      expect(await suite.inventory.decrementMany({ sku, fence: late, orders })).toMatchObject([
        { outcome: "applied", remaining: 4, replayed: true },
      ]);
      await expectConservation(sku);
      await next.unlock();
    });

    test("a replayed change claims the sku for its fence", async () => {
      const sku = await stocked(5);
      // Not of a lock in etcd: its release alone would fence the holder out.
      await using store = memoryLocks();
      const locked = () => store.lock(stockLock(sku), { ttl: 20_000, wait: 0 });
      const first = await locked();
      const done = { sku, quantity: 1, operationId: `${sku}/1`, fence: first.fence };
      await suite.inventory.decrement(done);
      await first.unlock();
      const { fence } = await locked();
      expect(await suite.inventory.decrement({ ...done, fence })).toMatchObject({ replayed: true });
      await expect(
        suite.inventory.decrement({ ...done, operationId: `${sku}/2` }),
      ).rejects.toMatchObject({ code: "FENCED_OUT", current: String(fence) });
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 4 });
    });

    test("a decrement on record keeps its result for a late holder, whatever else it sends at once", async () => {
      const sku = await stocked(5);
      await using store = memoryLocks();
      const locked = () => store.lock(stockLock(sku), { ttl: 20_000, wait: 0 });
      const first = await locked();
      const sale = (id: string) =>
        suite.inventory.decrement({
          ...{ sku, quantity: 1, operationId: `${sku}/${id}` },
          fence: first.fence,
        });
      await sale("1");
      await first.unlock();
      await suite.inventory.claim((await locked()).fence);
      const [, known, fresh] = await Promise.allSettled([sale("x"), sale("1"), sale("2")]);
      expect(known).toMatchObject({ value: { replayed: true, remaining: 4 } });
      expect(fresh).toMatchObject({ reason: { code: "FENCED_OUT" } });
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 4 });
    });

    test("confirm and cancel of a late holder are refused", async () => {
      const sku = await stocked(5);
      const { late, next } = await succeeded(await holding(sku));
      const reservation = `${sku}/r`;
      await suite.inventory.reserve({
        sku,
        quantity: 2,
        operationId: reservation,
        expiresIn: 60_000,
        fence: next.fence,
      });
      const closing = { sku, reservation, fence: late };
      const refused = { code: "FENCED_OUT" };
      await expect(
        suite.inventory.confirm({ ...closing, operationId: `${sku}/c` }),
      ).rejects.toMatchObject(refused);
      await expect(
        suite.inventory.cancel({ ...closing, operationId: `${sku}/d` }),
      ).rejects.toMatchObject(refused);
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 3, reserved: 2 });
      await next.unlock();
    });

    test("a late holder is fenced out, also where its change has another mistake", async () => {
      const sku = await stocked(5);
      const { late, next } = await succeeded(await holding(sku));
      await suite.inventory.claim(next.fence);
      const closing = { sku, reservation: `${sku}/none`, fence: late };
      await expect(
        suite.inventory.confirm({ ...closing, operationId: `${sku}/1` }),
      ).rejects.toMatchObject({ code: "FENCED_OUT" });
      await next.unlock();
      const unknown = `${sku}/unknown`;
      const { late: early, next: last } = await succeeded(await holding(unknown));
      await suite.inventory.claim(last.fence);
      const change = { sku: unknown, quantity: 1, operationId: `${unknown}/1`, fence: early };
      await expect(suite.inventory.decrement(change)).rejects.toMatchObject({
        code: "FENCED_OUT",
      });
      await last.unlock();
    });

    test("a fence that is forged or of another resource is refused", async () => {
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
        await expect(suite.inventory.decrement(change)).rejects.toMatchObject({
          code: "FENCE_INVALID",
        });
        await expect(
          suite.inventory.decrementMany({
            sku,
            fence: one,
            orders: [{ operationId: "x", quantity: 1 }],
          }),
        ).rejects.toMatchObject({ code: "FENCE_INVALID" });
      }
      await expect(suite.inventory.claim(forged[0] as Fence)).rejects.toMatchObject({
        code: "FENCE_INVALID",
      });
      // The forged fences have not locked out the holder.
      const change = { sku, quantity: 1, operationId: `${sku}/1`, fence };
      expect(await suite.inventory.decrement(change)).toMatchObject({ outcome: "applied" });
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 4 });
    });

    test("a fence of a higher generation is above every token of a lower one", async () => {
      const sku = await stocked(5);
      await (await holding(sku)).unlock();
      await using lock = await holding(sku);
      const old = lock.fence;
      // The lock store was lost and started again.
      const restarted = memoryLocks();
      await restarted.raiseGeneration(old.generation + 1);
      const { fence } = await restarted.lock(stockLock(sku), { ttl: 1_000, wait: 0 });
      expect(fence.token).toBeLessThan(old.token);
      await suite.inventory.decrement({ sku, quantity: 1, operationId: `${sku}/0`, fence: old });
      const change = { sku, quantity: 1, operationId: `${sku}/1`, fence };
      expect(await suite.inventory.decrement(change)).toMatchObject({ outcome: "applied" });
      await expect(
        suite.inventory.decrement({ ...change, operationId: `${sku}/2`, fence: old }),
      ).rejects.toMatchObject({ code: "FENCED_OUT" });
      await restarted.close();
    });

    test("of two holders with equal fences the second is refused", async () => {
      const sku = await stocked(9);
      // Two servers issue equal tokens: a primary, and the replica that was promoted without the last lock.
      const servers = [memoryLocks(), memoryLocks()];
      const [first, second] = await Promise.all(
        servers.map((store) => store.lock(stockLock(sku), { ttl: 20_000, wait: 0 })),
      );
      if (!first || !second) throw new Error("both servers grant the lock");
      const { fence } = second;
      expect(String(fence)).toBe(String(first.fence));
      const at = (order: number, by: Fence) => ({
        sku,
        quantity: 1,
        operationId: `${sku}/${order}`,
        fence: by,
      });
      expect(await suite.inventory.decrement(at(1, first.fence))).toMatchObject({
        outcome: "applied",
      });
      const orders = [{ quantity: 1, operationId: `${sku}/2` }];
      const changes = [
        () => suite.inventory.decrement(at(3, fence)),
        () => suite.inventory.restock(at(4, fence)),
        () => suite.inventory.decrementMany({ sku, orders, fence }),
        () => suite.inventory.claim(fence),
      ];
      const message = expect.stringMatching(/^another holder used .* first.*raise-generation/);
      const refused = { code: "FENCED_OUT", presented: fence, current: String(fence), message };
      for (const change of changes) await expect(change()).rejects.toMatchObject(refused);
      expect(await suite.inventory.decrement(at(5, first.fence))).toMatchObject({
        outcome: "applied",
      });
      await suite.inventory.claim(first.fence);
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 7 });
      // Their concurrent orders within one process never share a batch: only the first holder sells.
      const together = [first, second, first, second].map((lock, i) =>
        suite.inventory.decrement(at(6 + i, lock.fence)).catch((error) => error.code),
      );
      const applied = expect.objectContaining({ outcome: "applied" });
      expect(await Promise.all(together)).toEqual([applied, "FENCED_OUT", applied, "FENCED_OUT"]);
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 5 });
      await Promise.all(servers.map((store) => store.close()));
    });

    test("a fence that was sealed and opened counts as the lock's own", async () => {
      const sku = await stocked(5);
      const lock = await holding(sku);
      const secret = "a secret of more than 16 bytes";
      const fence = await openFence(await sealFence(lock.fence, secret), secret);
      const change = { sku, quantity: 1, operationId: `${sku}/1`, fence };
      expect(await suite.inventory.decrement(change)).toMatchObject({ outcome: "applied" });
      await lock.unlock();
    });
  });
}
