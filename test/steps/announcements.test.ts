import { expect, test } from "vitest";
import { z } from "zod";
import { createRuntime } from "../../core/steps/runtime.ts";
import { workflow } from "../../core/steps/workflow.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";

test("a runtime announces the calls that make a run due at once, and no others", async () => {
  let announced = 0;
  const wakeUps = {
    notify: () => {
      announced += 1;
    },
    listen: () => () => {},
  };
  const locks = Object.assign(memoryLocks(), { wakeUps });
  const runtime = createRuntime({ journal: memoryJournal(), locks, inlineWait: 0 });
  const { journal } = runtime;
  const isAnnounced = async (call: () => Promise<unknown>) => {
    const before = announced;
    await call();
    return announced > before;
  };
  const quick = workflow({ name: "quick", version: 1, input: z.string() }, async () => {});
  const sleeper = workflow({ name: "sleeper", version: 1, input: z.string() }, (ctx) =>
    ctx.sleep("nap", "1h"),
  );
  const broken = workflow({ name: "broken", version: 1, input: z.string() }, (ctx) =>
    ctx.step("fail", { retry: { attempts: 1 } }, async () => {
      throw new Error("no");
    }),
  );
  const parent = workflow({ name: "parent", version: 1, input: z.string() }, (ctx) =>
    ctx.child("child", sleeper, "x", { id: "f child" }),
  );
  const owner = { owner: "test", ttl: 60_000 };
  const go = { name: "go", dedupeId: "1", payload: "1" };

  expect(await isAnnounced(() => runtime.start(quick, "x", { id: "a" }))).toBe(true);
  expect(await isAnnounced(() => runtime.start(quick, "x", { singleton: "b" }))).toBe(true);
  const later = { debounce: { key: "c", for: "1h" } } as const;
  expect(await isAnnounced(() => runtime.start(quick, "x", later))).toBe(false);
  expect(await isAnnounced(() => runtime.execute(quick, "x", { id: "a" }))).toBe(false);
  expect(await isAnnounced(() => runtime.execute(sleeper, "x", { id: "d" }))).toBe(false);
  expect(await isAnnounced(() => journal.signal("d", go))).toBe(true);
  expect(await isAnnounced(() => journal.signal("d", go))).toBe(false);
  expect(await isAnnounced(() => journal.signal("a", go))).toBe(false);
  expect(await isAnnounced(() => runtime.cancel("d"))).toBe(true);
  expect(await isAnnounced(() => runtime.cancel("a"))).toBe(false);
  expect(await isAnnounced(() => runtime.execute(broken, "x", { id: "e" }))).toBe(false);
  expect(await isAnnounced(() => runtime.retry("e"))).toBe(true);
  expect(await isAnnounced(() => runtime.retry("e"))).toBe(false);
  expect(await isAnnounced(() => journal.setLimits("default", { concurrency: 2 }))).toBe(true);

  const claimed = await journal.take({ runId: "e", ...owner });
  if (claimed.kind !== "claimed") throw new Error(`the run is ${claimed.kind}`);
  const run = { runId: "e", epoch: claimed.epoch };
  const wait = { reason: "lock-busy", wakeIn: 60_000, signalsSeen: 0, lock: "hot" } as const;
  expect(await isAnnounced(() => journal.park(run, wait))).toBe(false);
  expect(await isAnnounced(() => journal.wakeWaiting("cold"))).toBe(false);
  expect(await isAnnounced(() => journal.wakeWaiting("hot"))).toBe(true);

  expect(await isAnnounced(() => runtime.execute(parent, "x", { id: "f" }))).toBe(true);
  expect(await isAnnounced(() => journal.cancelChildren("f"))).toBe(true);
  expect(await isAnnounced(() => runtime.resume("f child"))).toBe(true);
  expect(await isAnnounced(() => journal.cancelChildren("f"))).toBe(false);
});
