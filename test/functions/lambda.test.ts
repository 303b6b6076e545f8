import { describe, expect, test, vi } from "vitest";
import type { Lock } from "../../core/lock/lock.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { lazy, lockedHandler } from "../../functions/lambda/index.ts";
import { pause } from "../support/until.ts";

function within(millis = 20_000) {
  const endsAt = Date.now() + millis;
  return { getRemainingTimeInMillis: () => Math.max(0, endsAt - Date.now()) };
}

describe.concurrent("lockedHandler", () => {
  test("runs the handler under the lock of its event, and releases the lock before the response", async () => {
    const locks = memoryLocks();
    const handler = lockedHandler(
      locks,
      { name: (event: { id: string }) => `report/${event.id}` },
      async (event, lock) => {
        lock.assertHeld();
        const info = await locks.inspect("report/7");
        return { event, fence: String(lock.fence), expiresIn: info.expiresIn };
      },
    );
    const context = within(5_000);
    const { fence, expiresIn } = await handler({ id: "7" }, context);
    expect(fence).toMatch(/1$/);
    // As long as the invocation, and a little longer.
    expect(expiresIn).toBeGreaterThan(context.getRemainingTimeInMillis());
    expect(expiresIn).toBeLessThanOrEqual(7_100);
    expect(await locks.list()).toEqual([]);
  });

  test("releases the lock when the handler throws, and rethrows the error", async () => {
    const locks = memoryLocks();
    const error = new Error("no");
    const handler = lockedHandler(locks, { name: "a" }, () => Promise.reject(error));
    await expect(handler({}, within())).rejects.toBe(error);
    expect(await locks.list()).toEqual([]);
  });

  test("fails at once on a busy lock without `wait`, and waits while time to work is left", async () => {
    const locks = memoryLocks();
    const held = await locks.lock("a", { ttl: 60_000, wait: 0 });
    const handler = lockedHandler(
      locks,
      { name: "a", wait: "1m", reserve: 2_000 },
      async () => "done",
    );
    const impatient = lockedHandler(locks, { name: "a" }, async () => "done");
    await expect(impatient({}, within())).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
    const context = within(6_000);
    await expect(handler({}, context)).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
    expect(context.getRemainingTimeInMillis()).toBeGreaterThan(0);
    const waiting = handler({}, within());
    await held.unlock();
    expect(await waiting).toBe("done");
  });

  test("starts no work and calls no store in the last second", async () => {
    const locks = { ...memoryLocks(), lock: () => Promise.reject(new Error("it was asked")) };
    const handler = lockedHandler(locks, { name: "a", reserve: 500 }, async () => "done");
    for (const left of [0, 1_400]) {
      const refused = { code: "LOCK_TIMEOUT", message: expect.stringContaining("too little time") };
      await expect(handler({}, within(left))).rejects.toMatchObject(refused);
    }
  });

  test("rejects when the store of the lock was closed before the end", async () => {
    const locks = memoryLocks();
    const handler = lockedHandler(locks, { name: "a" }, async () => {
      await locks.close();
      return "done";
    });
    const lost = { code: "LOCK_LOST", why: "closed" };
    await expect(handler({}, within())).rejects.toMatchObject(lost);
  });

  test("abandons work that goes on to the end, whose lock expires", async () => {
    const locks = memoryLocks();
    const never = () => new Promise<never>(() => {});
    const handler = lockedHandler(locks, { name: "a", reserve: 1_000 }, never);
    const context = within(3_000);
    const lost = { code: "LOCK_LOST", why: "max-hold" };
    await expect(handler({}, context)).rejects.toMatchObject(lost);
    expect(context.getRemainingTimeInMillis()).toBeGreaterThan(0);
    expect((await locks.inspect("a")).expiresIn).toBeGreaterThan(0);
  });

  test("does not wait for a store that is not opened in time", async () => {
    const never = () => new Promise<never>(() => {});
    const handler = lockedHandler(never, { name: "a", reserve: 1_000 }, never);
    const context = within(2_000);
    await expect(handler({}, context)).rejects.toThrow("the invocation is over");
    expect(context.getRemainingTimeInMillis()).toBeGreaterThan(0);
  });

  test("aborts the lock's signal shortly before the invocation ends", async () => {
    const locks = memoryLocks();
    const handler = lockedHandler(locks, { name: "a", reserve: 2_000 }, async (_, lock) => {
      await new Promise((resolve) => lock.signal.addEventListener("abort", resolve));
      expect(() => lock.assertHeld()).toThrow(expect.objectContaining({ why: "max-hold" }));
      return "stopped";
    });
    const context = within(5_000);
    expect(await handler({}, context)).toBe("stopped");
    expect(context.getRemainingTimeInMillis()).toBeGreaterThan(0);
    expect(await locks.list()).toEqual([]);
  });

  test("responds although the store does not answer", async () => {
    const store = memoryLocks();
    const locks = {
      ...store,
      traits: store.traits,
      lock: async (name: string, options: Parameters<typeof store.lock>[1]): Promise<Lock> => {
        const lock = await store.lock(name, options);
        return new Proxy(lock, {
          get: (target, property) => {
            if (property === "unlock") return () => new Promise(() => {});
            return Reflect.get(target, property, target);
          },
        });
      },
    };
    const handler = lockedHandler(
      locks as typeof store,
      { name: "a", reserve: 2_000 },
      async () => "done",
    );
    const context = within(5_000);
    expect(await handler({}, context)).toBe("done");
    expect(context.getRemainingTimeInMillis()).toBeGreaterThan(0);
  });

  test("shares no state between invocations of one process", async () => {
    const locks = memoryLocks();
    const handles: Lock[] = [];
    const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const handler = lockedHandler(locks, { name: (n: number) => `${n}` }, async (n, lock) => {
      handles[n] = lock;
      await gates[n]?.promise;
    });
    const both = [handler(0, within()), handler(1, within())];
    await pause(20);
    gates[0]?.resolve();
    await both[0];
    expect(() => handles[0]?.assertHeld()).toThrow(expect.objectContaining({ code: "LOCK_LOST" }));
    expect(() => handles[0]?.fence).toThrow(expect.objectContaining({ code: "LOCK_LOST" }));
    handles[1]?.assertHeld();
    gates[1]?.resolve();
    await both[1];
    expect(handles[1]?.signal.aborted).toBe(true);
  });
});

test("rejects when the body has outlived its lock, also when the store does not answer", async ({
  onTestFinished,
}) => {
  const store = memoryLocks();
  const lock = async (...given: Parameters<typeof store.lock>) => {
    const held = await store.lock(...given);
    const unlock = () => held.unlock().then(() => new Promise<never>(() => {}));
    return new Proxy(held, {
      get: (target, name) => (name === "unlock" ? unlock : Reflect.get(target, name, target)),
    });
  };
  const locks = { ...store, traits: store.traits, lock } as typeof store;
  const [now, clock] = [Date.now.bind(Date), vi.spyOn(Date, "now")];
  onTestFinished(() => clock.mockRestore());
  const handler = lockedHandler(locks, { name: "a" }, async () => {
    clock.mockImplementation(() => now() + 60_000);
    return "done";
  });
  await expect(handler({}, within())).rejects.toMatchObject({ code: "LOCK_LOST" });
});

test("lazy opens once, and again after a failure", async () => {
  let opened = 0;
  const open = lazy(async () => {
    opened += 1;
    if (opened === 1) throw new Error("away");
    return { opened };
  });
  await expect(open()).rejects.toThrow("away");
  expect(await Promise.all([open(), open()])).toEqual([{ opened: 2 }, { opened: 2 }]);
  const message = "the argument of lazy must be a function, not 5";
  expect(() => lazy(5 as never)).toThrow(message);
});
