import { describe, expect, test, vi } from "vitest";
import { sleep } from "../../core/lock/abort.ts";
import type { Claims } from "../../core/lock/claims.ts";
import { pollingStore } from "../../core/lock/store.ts";
import { memoryClaims, newMemory } from "../../core/stores/memory/locks.ts";
import { finish, useVirtualClock } from "../support/timers.ts";
import { type Call, down, type Over, wrap } from "./wrapped-claims.ts";

useVirtualClock();

describe("a lock whose releases are published", () => {
  /** A waiter for a held lock, the times that it has read the lock, and how releases are published to it. */
  async function waiter({ isActive }: { readonly isActive: boolean }) {
    const memory = newMemory();
    const holder = await pollingStore(memoryClaims(memory)).lock("a", { ttl: 600_000, wait: 0 });
    let reads = 0;
    let publish: (() => void) | undefined;
    const over: Over = async (call, work) => {
      if (call === "freeIn") reads += 1;
      return work();
    };
    const store = pollingStore({
      ...wrap(memory, over),
      onRelease(_, listener) {
        publish = listener;
        return { isActive, stop: () => (publish = undefined) };
      },
    });
    let isOver = false;
    const waiting = store.lock("a", { ttl: 600_000, wait: 600_000 });
    void waiting.then(() => (isOver = true));
    return {
      holder,
      reads: () => reads,
      publish: () => publish?.(),
      isSubscribed: () => publish !== undefined,
      hasLock: () => isOver,
      release: async () => (await waiting).unlock(),
    };
  }

  test("is read after a release within some milliseconds, and otherwise every one or two seconds", async () => {
    const { holder, reads, publish, isSubscribed, hasLock, release } = await waiter({
      isActive: true,
    });
    await vi.advanceTimersByTimeAsync(20_000);
    expect(reads()).toBeLessThanOrEqual(21);
    expect(reads()).toBeGreaterThanOrEqual(9);
    await holder.unlock();
    publish();
    await vi.advanceTimersByTimeAsync(5);
    expect(hasLock()).toBe(true);
    await release();
    expect(isSubscribed()).toBe(false);
  });

  test("is read within 250 ms by a waiter that has lost it many times", async () => {
    const { holder, reads, publish, hasLock, release } = await waiter({ isActive: true });
    await vi.advanceTimersByTimeAsync(100);
    for (let i = 0; i < 20; i += 1) {
      const before = reads();
      publish();
      await vi.advanceTimersByTimeAsync(251);
      expect(reads()).toBeGreaterThan(before);
    }
    await holder.unlock();
    publish();
    await vi.advanceTimersByTimeAsync(251);
    expect(hasLock()).toBe(true);
    await release();
  });

  test("is polled while no releases are published", async () => {
    const { holder, reads, hasLock, release } = await waiter({ isActive: false });
    await vi.advanceTimersByTimeAsync(20_000);
    expect(reads()).toBeGreaterThan(90);
    await holder.unlock();
    await vi.advanceTimersByTimeAsync(200);
    expect(hasLock()).toBe(true);
    await release();
  });
});

describe("a store that cannot be reached", () => {
  test("fails an acquire at once, with one call", async () => {
    const calls: Call[] = [];
    const over: Over = async (call) => {
      calls.push(call);
      throw down();
    };
    const store = pollingStore(wrap(newMemory(), over));
    const lock = store.lock("a", { ttl: 1_000, wait: 30_000 });
    await expect(finish(lock)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(calls).toEqual(["claim"]);
  });

  test("is asked again after an attempt that its limit has ended before it was sent", async () => {
    const memory = newMemory();
    const calls: Call[] = [];
    const over: Over = async (call, work, signal) => {
      calls.push(call);
      if (calls.length > 1) return work();
      await sleep(60_000, signal).catch(() => {});
      throw down();
    };
    const store = pollingStore(wrap(memory, over));
    const lock = await finish(store.lock("a", { ttl: 10_000, wait: 30_000 }));
    expect(calls).toEqual(["claim", "claim"]);
    expect(await lock.unlock()).toBe("released");
  });

  test("does not end the wait of a caller that has had an answer", async () => {
    const memory = newMemory();
    let isDown = false;
    const over: Over = async (_, work) => {
      if (isDown) throw down();
      return work();
    };
    const holder = await pollingStore(memoryClaims(memory)).lock("a", { ttl: 60_000, wait: 0 });
    const waiting = pollingStore(wrap(memory, over)).lock("a", { ttl: 1_000, wait: 60_000 });
    await vi.advanceTimersByTimeAsync(1_000);
    isDown = true;
    await vi.advanceTimersByTimeAsync(10_000);
    await holder.unlock();
    isDown = false;
    const lock = await finish(waiting);
    lock.assertHeld();
    await lock.unlock();
  });
});

describe("a store that notifies waiters", () => {
  test("gets a claim, and no other request, after a notification", async () => {
    const memory = newMemory();
    const calls: (Call | "turn")[] = [];
    const over: Over = async (call, work) => {
      calls.push(call);
      return work();
    };
    const spans: number[] = [];
    const claims: Claims = {
      ...wrap(memory, over),
      waitForTurn: () => async (left, signal) => {
        calls.push("turn");
        spans.push(left);
        await sleep(1_000, signal);
      },
    };
    const holder = await pollingStore(memoryClaims(memory)).lock("a", { ttl: 60_000, wait: 0 });
    const waiting = pollingStore(claims).lock("a", { ttl: 60_000, wait: 5_000 });
    await vi.advanceTimersByTimeAsync(1_500);
    await holder.unlock();
    const lock = await finish(waiting);
    expect(calls).toEqual(["claim", "turn", "claim", "turn", "claim"]);
    expect(spans).toEqual([5_000, 4_000]);
    await lock.unlock();
  });

  test("is retried with pauses while it is unavailable", async () => {
    const memory = newMemory();
    let turns = 0;
    const claims: Claims = {
      ...memoryClaims(memory),
      waitForTurn: () => async () => {
        turns += 1;
        throw down();
      },
    };
    const holder = await pollingStore(memoryClaims(memory)).lock("a", { ttl: 60_000, wait: 0 });
    const waiting = pollingStore(claims).lock("a", { ttl: 1_000, wait: 60_000 });
    await vi.advanceTimersByTimeAsync(10_000);
    expect(turns).toBeGreaterThan(10_000 / 200 - 1);
    expect(turns).toBeLessThan(10_000 / 100 + 20);
    await holder.unlock();
    await (await finish(waiting)).unlock();
  });

  test("does not extend the caller's wait", async () => {
    const memory = newMemory();
    const claims: Claims = {
      ...memoryClaims(memory),
      waitForTurn: () => (left, signal) => sleep(left, signal),
    };
    const holder = await pollingStore(memoryClaims(memory)).lock("a", { ttl: 60_000, wait: 0 });
    const store = pollingStore(claims);
    const timed = store.lock("a", { ttl: 1_000, wait: 300 });
    await expect(finish(timed)).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
    const caller = new AbortController();
    const aborted = store.lock("a", { ttl: 1_000, wait: 60_000, signal: caller.signal });
    const outcome = expect(aborted).rejects.toBe("enough");
    await vi.advanceTimersByTimeAsync(100);
    caller.abort("enough");
    await outcome;
    await holder.unlock();
  });
});

describe("a wait for a free lock", () => {
  test("is told of releases only when the lock is held", async () => {
    const memory = newMemory();
    const claims = memoryClaims(memory);
    let publish: (() => void) | undefined;
    const store = pollingStore({
      ...claims,
      onRelease(_, listener) {
        publish = listener;
        return { isActive: true, stop: () => (publish = undefined) };
      },
    });
    const stop = new AbortController();
    await store.whenFree?.("a", stop.signal);
    expect(publish).toBeUndefined();
    const lock = await store.lock("a", { ttl: 600_000, wait: 0 });
    const waiting = store.whenFree?.("a", stop.signal);
    await vi.advanceTimersByTimeAsync(10);
    expect(publish).toBeDefined();
    await lock.unlock();
    publish?.();
    await waiting;
    expect(publish).toBeUndefined();
  });

  test("in a queue that the server does not keep asks with growing pauses, and opens no further subscription", async () => {
    const memory = newMemory();
    const holder = await pollingStore(memoryClaims(memory)).lock("a", { ttl: 600_000, wait: 0 });
    let claimed = 0;
    let subscribed = 0;
    const over: Over = async (call, work) => {
      if (call === "claim") claimed += 1;
      return work();
    };
    const store = pollingStore({
      ...wrap(memory, over),
      waitForTurn: () => async () => {
        throw down();
      },
      onRelease: () => {
        subscribed += 1;
        return { isActive: true, stop: () => {} };
      },
    });
    const waiting = store.lock("a", { ttl: 1_000, wait: 20_000 }).catch((error) => error);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(claimed).toBeLessThan(120);
    expect(subscribed).toBe(0);
    await holder.unlock();
    await vi.advanceTimersByTimeAsync(1_000);
    await finish((await waiting).unlock());
  });

  test("ends with its signal's reason, also while a read has no answer", async () => {
    const memory = newMemory();
    const over: Over = async (call, work, signal) => {
      if (call !== "freeIn") return work();
      await sleep(60_000, signal).catch(() => {});
      throw down();
    };
    const store = pollingStore(wrap(memory, over));
    const stop = new AbortController();
    const waiting = store.whenFree?.("a", stop.signal);
    const stopped = new Error("stopped");
    await vi.advanceTimersByTimeAsync(50);
    stop.abort(stopped);
    await expect(finish(waiting ?? Promise.resolve())).rejects.toBe(stopped);
  });
});
