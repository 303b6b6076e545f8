import { describe, expect, test, vi } from "vitest";
import { sleep } from "../../core/lock/abort.ts";
import { describeHolder, holderIdOf } from "../../core/lock/holder.ts";
import { pollingStore } from "../../core/lock/store.ts";
import { memoryClaims, newMemory } from "../../core/stores/memory/locks.ts";
import { finish, useVirtualClock } from "../support/timers.ts";
import { down, lost, type Over, wrap } from "./wrapped-claims.ts";

useVirtualClock();

describe("close", () => {
  test("waits for a claim under way, and for its withdrawal, before it ends the connections", async () => {
    const memory = newMemory();
    const calls: string[] = [];
    const over: Over = async (call, work) => {
      calls.push(call);
      if (call === "claim") await sleep(300);
      const answer = await work();
      calls.push(`${call} answered`);
      return answer;
    };
    const claims = wrap(memory, over);
    const close = async () => void calls.push("close");
    const store = pollingStore({ ...claims, close });
    const claiming = store.tryLock("a", { ttl: 30_000 });
    const outcome = expect(claiming).rejects.toMatchObject({ code: "STORE_CLOSED" });
    await vi.advanceTimersByTimeAsync(100);
    await finish(store.close());
    await outcome;
    expect(calls).toEqual(["claim", "claim answered", "drop", "drop answered", "close"]);
    expect(memory.locks.size).toBe(0);
  });
});

describe("withLock", () => {
  test("rejects with a loss that no timer has noticed, because the body blocked the event loop", async () => {
    const memory = newMemory();
    const store = pollingStore(memoryClaims(memory));
    const body = async () => void vi.setSystemTime(Date.now() + 5_000);
    const blocked = store.withLock("a", { ttl: 1_000, wait: 0 }, body);
    await expect(finish(blocked)).rejects.toMatchObject({ code: "LOCK_LOST", why: "expired" });
  });
});

describe("a release", () => {
  test("of a process that was frozen for longer than a ttl asks the store once more", async () => {
    const memory = newMemory();
    let drops = 0;
    const over: Over = async (call, work, signal) => {
      if (call === "drop") drops += 1;
      if (call !== "drop" || drops > 1) return work();
      const answer = sleep(600_000, signal);
      vi.advanceTimersByTime(60_000);
      await answer;
      throw lost();
    };
    const store = pollingStore(wrap(memory, over));
    const lock = await store.lock("a", { ttl: 5_000, wait: 0, renew: false });
    expect(await finish(lock.unlock())).toBe("was-lost");
    expect(drops).toBe(2);
  });

  test('whose answer was lost is a loss when a later answer is "not held" and the lock may have expired', async () => {
    const memory = newMemory();
    let isCut = true;
    const over: Over = async (call, work) => {
      if (call === "drop" && isCut) throw lost();
      return work();
    };
    const store = pollingStore(wrap(memory, over));
    const lock = await store.lock("a", { ttl: 1_000, wait: 0, renew: false });
    await vi.advanceTimersByTimeAsync(700);
    const released = lock.unlock();
    await vi.advanceTimersByTimeAsync(500);
    const next = await pollingStore(memoryClaims(memory)).lock("a", { ttl: 60_000, wait: 0 });
    isCut = false;
    expect(await finish(released)).toBe("was-lost");
    next.assertHeld();
    await next.unlock();
  });

  test("that was certainly not executed, and then finds the lock gone, is a loss", async () => {
    const memory = newMemory();
    let isDown = true;
    const over: Over = async (call, work) => {
      if (call !== "drop" || !isDown) return work();
      isDown = false;
      memory.locks.delete("a");
      throw down();
    };
    const lock = await pollingStore(wrap(memory, over)).lock("a", { ttl: 60_000, wait: 0 });
    expect(await finish(lock.unlock())).toBe("was-lost");
  });

  test("after the end of the lease is a loss, although the store has had the lock until then", async () => {
    const memory = newMemory();
    const options = { ttl: 10_000, wait: 0, renew: false };
    const lock = await pollingStore(memoryClaims(memory)).lock("a", options);
    await vi.advanceTimersByTimeAsync(9_950);
    expect(memory.locks.size).toBe(1);
    expect(await finish(lock.unlock())).toBe("was-lost");
    expect(memory.locks.size).toBe(0);
  });

  test("by an operator ends, also when the store finds the holder again and again, and removes none", async () => {
    let drops = 0;
    const over: Over = async (call, work) => {
      if (call !== "drop") return work();
      drops += 1;
      return false as never;
    };
    const store = pollingStore(wrap(newMemory(), over));
    const { fence } = await store.lock("a", { ttl: 60_000, wait: 0 });
    const { holder } = await store.inspect("a");
    await expect(finish(store.release("a", { fence }))).rejects.toMatchObject({
      code: "STORE_REFUSED",
      message: expect.stringContaining(`lock "a" is held by ${holder}`),
    });
    expect(drops).toBe(1);
    await finish(store.close());
  });

  test("by an operator follows a holder whose text changes, for ten seconds", async () => {
    const memory = newMemory();
    const claims = memoryClaims(memory);
    let value = 0;
    const over: Over = async (call, work) => {
      if (call !== "drop") return work();
      await sleep(100);
      const { holder: text = "" } = await claims.inspect("a");
      value += 1;
      const next = describeHolder(holderIdOf(text), { value: String(value), revision: value });
      await claims.renew(["a"], text, 60_000, new AbortController().signal, next);
      return work();
    };
    const store = pollingStore(wrap(memory, over));
    const { fence } = await store.lock("a", { ttl: 600_000, wait: 0, renew: false });
    const startedAt = performance.now();
    const failure = { code: "STORE_REFUSED" };
    await expect(finish(store.release("a", { fence }))).rejects.toMatchObject(failure);
    expect(value).toBeGreaterThan(10);
    expect(performance.now() - startedAt).toBeLessThan(11_000);
    await finish(store.close());
  });

  test("is repeated until the store answers", async () => {
    const memory = newMemory();
    let failures = 5;
    const over: Over = async (call, work) => {
      if (call === "drop" && failures-- > 0) throw down();
      return work();
    };
    const lock = await pollingStore(wrap(memory, over)).lock("a", { ttl: 10_000, wait: 0 });
    expect(await finish(lock.unlock())).toBe("released");
    expect(memory.locks.size).toBe(0);
  });

  test("that the store never answers ends with an unknown outcome within one ttl", async () => {
    const over: Over = async (call, work) => {
      if (call === "drop") throw down();
      return work();
    };
    const store = pollingStore(wrap(newMemory(), over));
    const lock = await store.lock("a", { ttl: 2_000, wait: 0 });
    const start = performance.now();
    await expect(finish(lock.unlock())).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
    expect(performance.now() - start).toBeLessThanOrEqual(2_000);
  });

  test("by the store that is closed under the body of withLock is a loss", async () => {
    const store = pollingStore(memoryClaims(newMemory()));
    const working = store.withLock("a", { ttl: 1_000, wait: 0 }, async () => {
      await store.close();
      return "done";
    });
    await expect(finish(working)).rejects.toMatchObject({ code: "LOCK_LOST", why: "closed" });
  });

  test("that fails does not hide the outcome of the body of withLock", async () => {
    const over: Over = async (call, work) => {
      if (call === "drop") throw down();
      return work();
    };
    const store = pollingStore(wrap(newMemory(), over));
    const options = { ttl: 1_000, wait: 0 };
    expect(await finish(store.withLock("a", options, async () => "done"))).toBe("done");
    await vi.advanceTimersByTimeAsync(2_000);
    const fault = new Error("the body's own");
    const failing = store.withLock("a", options, () => Promise.reject(fault));
    await expect(finish(failing)).rejects.toBe(fault);
  });
});
