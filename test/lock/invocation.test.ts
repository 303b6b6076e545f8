import { describe, expect, test, vi } from "vitest";
import { deadlineIn } from "../../core/lock/duration.ts";
import { pollingStore } from "../../core/lock/store.ts";
import { memoryClaims, newMemory } from "../../core/stores/memory/locks.ts";
import { finish, useVirtualClock } from "../support/timers.ts";

useVirtualClock();

describe('the ttl "invocation"', () => {
  test("ends shortly after the invocation, without renewal", async () => {
    const memory = newMemory();
    const renewals = vi.fn();
    const claims = memoryClaims(memory);
    const store = pollingStore({
      ...claims,
      renew: (...request) => {
        renewals();
        return claims.renew(...request);
      },
    });
    const deadline = { remaining: () => 3_000 };
    const lock = await store.lock("a", { ttl: "invocation", wait: 0, deadline });
    expect((await store.inspect("a")).expiresIn).toBeCloseTo(5_000, -2);
    await vi.advanceTimersByTimeAsync(4_900);
    lock.assertHeld();
    await vi.advanceTimersByTimeAsync(100);
    expect(lock.signal.aborted).toBe(true);
    expect(renewals).not.toHaveBeenCalled();
  });

  test("needs a deadline, and no wait outlasts it", async () => {
    const store = pollingStore(memoryClaims(newMemory()));
    await expect(store.lock("a", { ttl: "invocation", wait: 0 })).rejects.toThrow(TypeError);
    const lock = await store.lock("a", { ttl: 60_000, wait: 0 });
    const deadline = { remaining: () => 500 };
    const start = performance.now();
    const waiting = store.lock("a", { ttl: "invocation", wait: 60_000, deadline });
    await expect(finish(waiting)).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
    expect(performance.now() - start).toBeLessThan(600);
    const over = { ttl: "invocation", wait: 1, deadline: { remaining: () => 0 } } as const;
    await expect(finish(store.lock("a", over))).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
    await lock.unlock();
  });

  test("is not requested when the deadline is over", async () => {
    const store = pollingStore(memoryClaims(newMemory()));
    const deadline = deadlineIn(0);
    const message = 'lock "a" was not requested: the deadline is over';
    const late = { code: "LOCK_TIMEOUT", message };
    for (const ttl of ["invocation", 1_000] as const) {
      const options = { ttl, wait: 1_000, deadline };
      await expect(store.lock("a", options)).rejects.toMatchObject(late);
      const body = vi.fn();
      await expect(store.withLock("a", options, body)).rejects.toMatchObject(late);
      expect(body).not.toHaveBeenCalled();
      expect(await store.tryLock("a", { ttl, deadline })).toBeUndefined();
    }
    expect(await store.list()).toEqual([]);
  });

  test("holds a lock provably until the end of a long invocation", async () => {
    const store = pollingStore(memoryClaims(newMemory()));
    const span = 15 * 60_000;
    const lock = await store.lock("a", { ttl: "invocation", wait: 0, deadline: deadlineIn(span) });
    await vi.advanceTimersByTimeAsync(span);
    lock.assertHeld();
    await vi.advanceTimersByTimeAsync(3_000);
    expect(() => lock.assertHeld()).toThrow(expect.objectContaining({ why: "expired" }));
    await finish(lock.unlock());
  });
});
