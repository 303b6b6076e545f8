import { describe, expect, test } from "vitest";
import { LockLostError } from "../../core/lock/errors.ts";
import { compareFence } from "../../core/lock/fence.ts";
import { known } from "../support/known.ts";
import { runScript } from "../support/script.ts";
import { pause, until } from "../support/until.ts";
import { freshName, LONG, type LockSuite, SHORT } from "./lock-suite.ts";

/** How long a lock is valid. */
export function describeValidity(suite: LockSuite): void {
  const { expectFree, open, openOverWire, tryLock } = suite;

  describe("validity and renewal", () => {
    test("a held lock outlives its ttl while it is renewed", async () => {
      const [ours, theirs] = [open(), open()];
      const name = freshName();
      const lock = await ours.lock(name, { ttl: 2 * SHORT, wait: LONG });
      const end = performance.now() + 4 * SHORT;
      while (performance.now() < end) {
        expect(await tryLock(theirs, name)).toBeUndefined();
        await pause(SHORT / 4);
      }
      lock.assertHeld();
      expect(await lock.unlock()).toBe("released");
    });

    test("the signal aborts no later than the lock expires at the store when renewals are cut off", async () => {
      const { client, wire } = await openOverWire();
      const other = open();
      const name = freshName();
      const lock = await client.lock(name, { ttl: 2 * SHORT, wait: LONG });
      await pause((4 / 3) * SHORT);
      lock.assertHeld();
      wire.cut();
      let abortedAt = 0;
      lock.signal.addEventListener("abort", () => {
        abortedAt = performance.now();
      });
      const next = await other.lock(name, { ttl: LONG, wait: LONG });
      await pause(0);
      expect(abortedAt).toBeGreaterThan(0);
      expect(abortedAt).toBeLessThanOrEqual(performance.now());
      expect(lock.signal.reason).toBeInstanceOf(LockLostError);
      expect(compareFence(lock.fence, next.fence)).toBe(-1);
      wire.mend();
      expect(await lock.unlock()).toBe("was-lost");
      next.assertHeld();
    });

    test("a lock without renewal expires, and a release by its old holder does not affect the next holder", async () => {
      const [ours, theirs] = [open(), open()];
      const name = freshName();
      const stale = await ours.lock(name, { ttl: SHORT, wait: LONG, renew: false });
      const lock = await theirs.lock(name, { ttl: LONG, wait: LONG });
      // Lets timers that are due fire.
      await pause(0);
      expect(stale.signal.aborted).toBe(true);
      expect(() => stale.assertHeld()).toThrow(LockLostError);
      expect(await stale.unlock()).toBe("was-lost");
      expect(await tryLock(ours, name)).toBeUndefined();
      lock.assertHeld();
      expect(await lock.unlock()).toBe("released");
    });

    test("a killed holder's lock is free soon after its ttl", async () => {
      const { url } = suite.store;
      if (url === undefined) {
        expect(suite.isOpenedByUrl()).toBe(false);
        return;
      }
      const name = freshName();
      using holder = runScript("hold", url, name, String(SHORT));
      await holder.line();
      holder.child.kill("SIGKILL");
      const lock = await open().lock(name, { ttl: LONG, wait: LONG });
      await lock.unlock();
    });

    test("a holder whose lock is gone from the store loses the lock at the next renewal", async () => {
      const name = freshName();
      const lock = await open().lock(name, { ttl: 2 * SHORT, wait: LONG });
      await suite.store.erase(name);
      await until(() => lock.signal.aborted);
      expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", why: "taken" });
      expect(await lock.unlock()).toBe("was-lost");
    });

    test("a holder whose lock has another holder loses the lock and does not renew it", async () => {
      const name = freshName();
      const lock = await open().lock(name, { ttl: 2 * SHORT, wait: LONG });
      await suite.store.erase(name);
      const next = await open().lock(name, { ttl: LONG, wait: LONG, renew: false });
      await until(() => lock.signal.aborted);
      expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", why: "taken" });
      expect(await lock.unlock()).toBe("was-lost");
      next.assertHeld();
      expect(await next.unlock()).toBe("released");
    });

    test("ensure renews for the span it is given", async () => {
      const [ours, theirs] = [open(), open()];
      const name = freshName();
      const ttl = 2 * SHORT;
      const lock = await ours.lock(name, { ttl, wait: LONG, renew: false });
      await lock.ensure(2 * ttl);
      lock.assertHeld(ttl);
      await pause(ttl);
      expect(await tryLock(theirs, name)).toBeUndefined();
      expect(await lock.unlock()).toBe("released");
    });

    test("a renewal never brings an expiry forward", async () => {
      const [ours, theirs] = [open(), open()];
      const name = freshName();
      const lock = await ours.lock(name, { ttl: 2 * SHORT, wait: LONG });
      await lock.ensure(LONG);
      await pause(2 * SHORT);
      const { expiresIn = 0 } = await theirs.inspect(name);
      expect(expiresIn).toBeGreaterThan(LONG / 2);
      lock.assertHeld(LONG / 2);
    });

    test("maxHold ends a hold that is renewed", async () => {
      const [ours, theirs] = [open(), open()];
      const name = freshName();
      const lock = await ours.lock(name, { ttl: SHORT, wait: LONG, maxHold: 2 * SHORT });
      const next = await theirs.lock(name, { ttl: LONG, wait: LONG });
      await until(() => lock.signal.aborted);
      expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", why: "max-hold" });
      next.assertHeld();
    });

    test("lockDelay reserves an expired lock, and a released lock is free at once", async () => {
      const [ours, theirs] = [open(), open()];
      const options = { ttl: SHORT, wait: LONG, renew: false, lockDelay: SHORT };
      if (!ours.traits.lockDelay) {
        await expect(ours.lock(freshName(), options)).rejects.toThrow(RangeError);
        return;
      }
      const name = freshName();
      const lostAt = performance.now() + SHORT;
      await ours.lock(name, options);
      const next = await theirs.lock(name, { ttl: LONG, wait: LONG });
      expect(performance.now()).toBeGreaterThan(lostAt + SHORT - 50);
      await next.unlock();
      // The delay also binds clients that have not read the lock before.
      const delayed = freshName();
      await ours.lock(delayed, { ...options, lockDelay: LONG });
      await until(async () => (await theirs.inspect(delayed)).holder === undefined);
      expect(await tryLock(open(), delayed)).toBeUndefined();
      const returned = await ours.lock(name, options);
      await returned.unlock();
      await expectFree(name);
    });
  });
}

/** How waits end. */
export function describeWaiting(suite: LockSuite): void {
  const { expectFree, open } = suite;

  describe("waiting", () => {
    test("a waiter gets the lock when the holder releases it", async () => {
      const [ours, theirs] = [open(), open()];
      const name = freshName();
      const lock = await ours.lock(name, { ttl: LONG, wait: LONG });
      const waiting = theirs.lock(name, { ttl: LONG, wait: LONG });
      await pause(50);
      await lock.unlock();
      const next = await waiting;
      expect(compareFence(lock.fence, next.fence)).toBe(-1);
      await next.unlock();
    });

    test("a wait that times out leaves nothing behind", async () => {
      const [ours, theirs] = [open(), open()];
      const name = freshName();
      const lock = await ours.lock(name, { ttl: LONG, wait: LONG });
      const wait = known(() => theirs.lock(name, { ttl: LONG, wait: 100 }));
      await expect(wait).rejects.toMatchObject({ code: "LOCK_TIMEOUT", retryable: true });
      await lock.unlock();
      await expectFree(name);
    });

    test("a wait that is aborted at any moment rejects with the caller's reason and leaves nothing behind", async () => {
      const [ours, theirs] = [open(), open()];
      for (let i = 0; i < 30; i += 1) {
        const name = freshName();
        const lock = i % 3 === 0 ? undefined : await ours.lock(name, { ttl: LONG, wait: LONG });
        const reason = [{ because: i }, null, "enough", new Error("enough")][i % 4];
        const caller = new AbortController();
        const waiting = theirs.lock(name, { ttl: LONG, wait: LONG, signal: caller.signal });
        const settled = waiting.then(
          (got) => got.unlock(),
          (error) => expect(error).toBe(reason),
        );
        await pause(i % 10);
        caller.abort(reason);
        await settled;
        await lock?.unlock();
        await expectFree(name);
      }
    });

    test("waiters of one client get the lock in order of arrival", async () => {
      const [ours, theirs] = [open(), open()];
      const name = freshName();
      const first = await theirs.lock(name, { ttl: LONG, wait: LONG });
      const order: number[] = [];
      const waiters = [1, 2, 3, 4, 5].map(async (place) => {
        const lock = await ours.lock(name, { ttl: LONG, wait: LONG });
        order.push(place);
        await lock.unlock();
      });
      await first.unlock();
      await Promise.all(waiters);
      expect(order).toEqual([1, 2, 3, 4, 5]);
    });

    test("a client refuses more waiters than maxWaiters", async () => {
      const client = open({ maxWaiters: 2 });
      const name = freshName();
      const lock = await client.lock(name, { ttl: LONG, wait: LONG });
      const waiters = [1, 2].map(() => client.lock(name, { ttl: LONG, wait: LONG }));
      await expect(client.lock(name, { ttl: LONG, wait: LONG })).rejects.toMatchObject({
        code: "TOO_MANY_WAITERS",
      });
      await lock.unlock();
      for (const waiter of waiters) await (await waiter).unlock();
    });
  });
}
