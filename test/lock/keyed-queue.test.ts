import { describe, expect, test } from "vitest";
import { KeyedQueue } from "../../core/lock/keyed-queue.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { memoryLocks, newMemory } from "../../core/stores/memory/locks.ts";

const never = new AbortController().signal;

describe("a queue", () => {
  test("gives the turn to one waiter at a time, in order of arrival", async () => {
    const line = new KeyedQueue(10);
    expect(line.tryEnter("a")).toBe(true);
    const order: number[] = [];
    const waiters = [1, 2, 3].map((place) => line.enter("a", never).then(() => order.push(place)));
    expect(line.waiting("a")).toBe(3);
    for (const waiter of waiters) {
      expect(line.tryEnter("a")).toBe(false);
      line.leave("a");
      await waiter;
    }
    expect(order).toEqual([1, 2, 3]);
    line.leave("a");
    expect(line.tryEnter("a")).toBe(true);
  });

  test("skips an aborted waiter, whose wait rejects with its own reason", async () => {
    const line = new KeyedQueue(10);
    await line.enter("a", never);
    const caller = new AbortController();
    const aborted = line.enter("a", caller.signal);
    const next = line.enter("a", never);
    caller.abort("enough");
    await expect(aborted).rejects.toBe("enough");
    expect(line.waiting("a")).toBe(1);
    line.leave("a");
    await next;
    line.leave("a");
    expect(line.tryEnter("a")).toBe(true);
  });

  test("without waiters is free after its holder leaves", async () => {
    const line = new KeyedQueue(10);
    await line.enter("a", never);
    const caller = new AbortController();
    const aborted = line.enter("a", caller.signal);
    caller.abort(null);
    await expect(aborted).rejects.toBe(null);
    line.leave("a");
    expect(line.tryEnter("a")).toBe(true);
  });

  test("rejects a waiter whose signal has aborted before", async () => {
    const line = new KeyedQueue(10);
    await line.enter("a", never);
    await expect(line.enter("a", AbortSignal.abort("before"))).rejects.toBe("before");
    expect(line.waiting("a")).toBe(0);
  });

  test("does not count an aborted waiter towards the limit", async () => {
    const line = new KeyedQueue(1);
    await line.enter("a", never);
    await line.enter("b", never);
    const caller = new AbortController();
    const aborted = line.enter("a", caller.signal);
    await expect(line.enter("b", never)).rejects.toMatchObject({ code: "TOO_MANY_WAITERS" });
    caller.abort("enough");
    await expect(aborted).rejects.toBe("enough");
    const next = line.enter("b", never);
    line.leave("b");
    await next;
  });
});

describe("a wait in several queues of one client", () => {
  const options = { ttl: 60_000, wait: 60_000 };

  /** Holds the middle one of three names, so that a wait for all of them ends between two queues. */
  const withMiddleHeld = async (work: (locks: LockStore) => Promise<void>) => {
    await using locks = memoryLocks({ maxWaiters: 1 });
    const held = await locks.lock("b", options);
    await work(locks);
    for (const name of ["a", "c"]) {
      const free = await locks.tryLock(name, options);
      expect(free, name).toBeDefined();
      await free?.unlock();
    }
    await held.unlock();
    const all = await locks.lockAll(["a", "b", "c"], { ...options, wait: 0 });
    await all.unlock();
  };

  test("leaves all of them when it is aborted", () =>
    withMiddleHeld(async (locks) => {
      const caller = new AbortController();
      const { signal } = caller;
      const waiting = locks.lockAll(["a", "b", "c"], { ...options, signal });
      caller.abort("enough");
      await expect(waiting).rejects.toBe("enough");
    }));

  test("leaves all of them after a timeout", () =>
    withMiddleHeld(async (locks) => {
      const waiting = locks.lockAll(["a", "b", "c"], { ...options, wait: 10 });
      await expect(waiting).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
    }));

  test("leaves all of them when there are too many waiters", () =>
    withMiddleHeld(async (locks) => {
      const caller = new AbortController();
      const first = locks.lock("b", { ...options, signal: caller.signal });
      const second = locks.lockAll(["a", "b", "c"], options);
      await expect(second).rejects.toMatchObject({ code: "TOO_MANY_WAITERS" });
      caller.abort("enough");
      await expect(first).rejects.toBe("enough");
    }));

  test("leaves all of them when another client has the lock", async () => {
    const memory = newMemory();
    await using locks = memoryLocks({ memory });
    await using other = memoryLocks({ memory });
    const held = await other.lock("b", options);
    const refused = locks.lockAll(["a", "b"], { ...options, wait: 0 });
    await expect(refused).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
    await held.unlock();
    const all = await locks.lockAll(["a", "b"], { ...options, wait: 0 });
    await all.unlock();
  });

  test("leaves all of them when it must not wait", () =>
    withMiddleHeld(async (locks) => {
      const refused = locks.lockAll(["a", "b", "c"], { ...options, wait: 0 });
      await expect(refused).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
    }));
});
