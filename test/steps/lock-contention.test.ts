import { expect, test } from "vitest";
import type { LockOptions } from "../../core/lock/lock.ts";
import { createRuntime } from "../../core/steps/index.ts";
import { LockContention } from "../../core/steps/lock-contention.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { flow } from "../support/flow.ts";
import { until } from "../support/until.ts";

test("a cancellation during the last step waits for no busy lock of an undo", async () => {
  await using store = memoryLocks();
  const journal = memoryJournal();
  const waits: unknown[] = [];
  const locks = new Proxy(store, {
    get(target, member) {
      const value: unknown = Reflect.get(target, member);
      if (typeof value !== "function") return value;
      return (...args: readonly unknown[]) => {
        if (member === "lock") waits.push((args[1] as LockOptions).wait);
        return value.apply(target, args);
      };
    },
  });
  const wf = flow(async (ctx) => {
    await ctx.step(
      "reserve",
      { lock: "cup" },
      async () => {},
      async () => {},
    );
    await ctx.step("last", async () => {
      await journal.cancel("r");
      await store.lock("cup", { ttl: 20_000, wait: 0 });
    });
  });
  const rt = createRuntime({ journal, locks });
  const outcome = await rt.execute(wf, { n: 1 }, { id: "r", lockWait: "0s" });
  expect(outcome).toMatchObject({ status: "suspended", reason: "lock-busy" });
  expect(waits.every((wait) => wait === 0)).toBe(true);
});

test("a process watches 100 busy locks at most, and none that no run waits for", async () => {
  await using store = memoryLocks();
  const watched = new Set<string>();
  const locks = new Proxy(store, {
    get(target, member) {
      const value: unknown = Reflect.get(target, member);
      if (typeof value !== "function") return value;
      if (member !== "whenFree") return value.bind(target);
      return async (name: string, signal: AbortSignal) => {
        expect(watched).not.toContain(name);
        watched.add(name);
        await store.whenFree?.(name, signal).finally(() => watched.delete(name));
      };
    },
  });
  const contention = new LockContention(memoryJournal(), locks);
  const busy = (i: number) => contention.busy([`lock ${i}`], 500);
  busy(0);
  expect(watched.size).toBe(0);
  const all = Array.from({ length: 120 }, (_, i) => `lock ${i + 1}`);
  const held = await Promise.all(all.map((name) => store.lock(name, { ttl: 20_000, wait: 0 })));
  const end = contention.watch();
  const waits = all.map((_, i) => busy(i + 1));
  busy(1);
  expect(watched.size).toBe(100);
  expect(waits[0]?.wakeIn).toBeGreaterThanOrEqual(1_000);
  expect(waits[119]?.wakeIn).toBe(500);
  expect(waits[0]?.isReleased()).toBe(false);
  await held[0]?.unlock();
  // No run waits in the journal.
  await until(() => watched.size === 99 && !contention.hasWaiting(["lock 1"]));
  expect(waits[0]?.isReleased()).toBe(true);
  end();
  await until(() => watched.size === 0);
  expect(contention.hasWaiting(all)).toBe(false);
});
