import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { z } from "zod";
import type { Journal } from "../../core/journal/journal.ts";
import type { RunClaim } from "../../core/journal/runs.ts";
import { createRuntime } from "../../core/steps/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { flow } from "../support/flow.ts";
import { finish } from "../support/timers.ts";

const sleep = (span: number) => new Promise<void>((resolve) => setTimeout(resolve, span));

const input = { n: 1 };

describe("with a virtual clock", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.restoreAllMocks();
  });

  test("the lease of a run counts from the time when the claim was sent", async () => {
    const memory = memoryJournal();
    const slow: Journal = Object.assign(Object.create(memory), {
      claim: async (claim: RunClaim) => {
        const claimed = await memory.claim(claim);
        await new Promise((resolve) => setTimeout(resolve, 2_000));
        return claimed;
      },
      renew: () => new Promise(() => {}),
    });
    const startedAt = performance.now();
    let abortedAfter: number | undefined;
    const wf = flow(async (ctx) =>
      ctx.step("long", async ({ signal }) => {
        signal.addEventListener("abort", () => {
          abortedAfter = performance.now() - startedAt;
        });
        await new Promise(() => {});
      }),
    );
    const runtime = createRuntime({ journal: slow, lease: 3_000 });
    const outcome = runtime.execute(wf, input, { id: "slow" });
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await outcome).toMatchObject({ status: "busy" });
    expect(abortedAfter).toBeGreaterThan(2_000);
    expect(abortedAfter).toBeLessThanOrEqual(3_000);
  });

  test("a step with the default retries outlasts an outage of six minutes, and holds no process", async () => {
    // The shortest pauses.
    vi.spyOn(Math, "random").mockReturnValue(0);
    const startedAt = performance.now();
    const parked: number[] = [];
    const wf = flow(async (ctx) =>
      ctx.step("call", async ({ attempt }) => {
        if (performance.now() - startedAt < 360_000) throw new Error("a deploy is under way");
        return attempt;
      }),
    );
    const runtime = createRuntime({
      journal: memoryJournal(),
      onEvent: (event) => event.type === "parked" && parked.push(event.wakeIn),
    });
    const outcome = runtime.run(wf, input, { id: "outage" });
    await vi.advanceTimersByTimeAsync(400_000);
    expect(await outcome).toMatchObject({ status: "completed" });
    expect(parked.reduce((sum, wakeIn) => sum + wakeIn, 0)).toBeGreaterThan(350_000);
  });

  test("a step that takes more than a second is on record soon, and not for long after its end", async () => {
    const journal = memoryJournal();
    const renew = vi.spyOn(journal, "renew");
    const work = (span: number) => () => sleep(span);
    const wf = flow(async (ctx) => {
      for (let i = 0; i < 50; i += 1) await ctx.step(`short-${i}`, work(100));
      await ctx.step("long", work(5_000));
      for (let i = 0; i < 50; i += 1) await ctx.step(`later-${i}`, work(100));
    });
    const outcome = createRuntime({ journal, lease: 300_000 }).run(wf, input, { id: "long" });
    const recorded = async () => (await journal.find("long"))?.inProgress;
    await vi.advanceTimersByTimeAsync(5_000);
    expect(renew).not.toHaveBeenCalled();
    const begunAt = Date.now();
    await vi.advanceTimersByTimeAsync(2_100);
    expect(await recorded()).toEqual([{ key: "long", since: expect.any(Date) }]);
    expect((await recorded())?.[0]?.since.getTime()).toBeCloseTo(begunAt, -2);
    await vi.advanceTimersByTimeAsync(2_900 + 1_100);
    expect(await recorded()).toEqual([]);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await outcome).toMatchObject({ status: "completed" });
    expect(renew).toHaveBeenCalledTimes(2);
  });

  test("a replay that waits for an earlier step ends with its execution, and leaves no timer", async () => {
    const stop = new AbortController();
    let isReplay = false;
    const wf = flow(async (ctx) => {
      const first = async () => {
        if (isReplay) await new Promise(() => {});
        await ctx.step("first", async () => {});
      };
      const second = async () => {
        await sleep(1);
        await ctx.step("second", async () => {});
        await ctx.step("third", async () => {});
      };
      await Promise.all([first(), second()]);
      await ctx.waitFor("go", z.null());
    });
    const runtime = createRuntime({ journal: memoryJournal() });
    const parked = runtime.execute(wf, input, { id: "r" });
    expect(await finish(parked)).toMatchObject({ status: "suspended", reason: "signal" });
    isReplay = true;
    await runtime.signal("r", "go", null, { dedupeId: "1" });
    const outcome = runtime.resume("r", { signal: stop.signal });
    await vi.advanceTimersByTimeAsync(1_000);
    expect(vi.getTimerCount()).toBeGreaterThan(0);
    stop.abort();
    expect(await finish(outcome)).toMatchObject({ status: "suspended" });
    expect(vi.getTimerCount()).toBe(0);
  });

  test("a step that waits for a lock says so, and since when the step itself goes on", async () => {
    const [journal, locks] = [memoryJournal(), memoryLocks()];
    const runtime = createRuntime({ journal, locks });
    const wf = flow(async (ctx) => {
      await ctx.step("one", { lock: { names: "a", wait: 60_000 } }, () => sleep(5_000));
    });
    const holder = await locks.lock("a", { ttl: 60_000, wait: 0 });
    const outcome = runtime.run(wf, input, { id: "waits" });
    await vi.advanceTimersByTimeAsync(3_000);
    const [waiting] = (await journal.find("waits"))?.inProgress ?? [];
    expect(waiting).toMatchObject({ key: "one", waitsFor: "a" });
    await holder[Symbol.asyncDispose]();
    await vi.advanceTimersByTimeAsync(3_000);
    const [going] = (await journal.find("waits"))?.inProgress ?? [];
    expect(going?.waitsFor).toBeUndefined();
    expect(Number(going?.since) - Number(waiting?.since)).toBeCloseTo(3_000, -2);
    await vi.advanceTimersByTimeAsync(5_000);
    expect(await outcome).toMatchObject({ status: "completed" });
    expect((await journal.find("waits"))?.inProgress).toEqual([]);
  });

  test("a process that takes a run over waits for the rest of the pause after a failed attempt", async () => {
    const journal = memoryJournal();
    let attempts = 0;
    const wf = flow(async (ctx) =>
      ctx.step("flaky", { retry: { base: 10_000, jitter: "none" } }, async ({ attempt }) => {
        attempts += 1;
        if (attempt === 1) throw new Error("not yet");
        return attempt;
      }),
    );
    const dying = new AbortController();
    const first = createRuntime({ journal, inlineWait: 60_000 }).execute(wf, input, {
      id: "over",
      signal: dying.signal,
    });
    await vi.advanceTimersByTimeAsync(4_000);
    dying.abort();
    expect(await first).toMatchObject({ status: "suspended", reason: "deadline" });
    const second = createRuntime({ journal, inlineWait: 5 });
    const outcome = second.execute(wf, input, { id: "over" });
    await vi.advanceTimersByTimeAsync(100);
    expect(await outcome).toMatchObject({
      status: "suspended",
      reason: "retry-delay",
      wakeIn: expect.closeTo(6_000, -3),
    });
    expect(attempts).toBe(1);
  });
});

test("a result does not count when the step blocked the event loop until its lock was lost", async () => {
  const locks = memoryLocks();
  const runtime = createRuntime({ journal: memoryJournal(), locks });
  const retry = { base: 1, jitter: "none" } as const;
  const wf = flow(async (ctx) =>
    ctx.step("blocking", { lock: { names: ["sku/1"], ttl: 1_000 }, retry }, async ({ attempt }) => {
      const until = performance.now() + (attempt === 1 ? 1_100 : 0);
      while (performance.now() < until);
      return attempt;
    }),
  );
  expect(await runtime.run(wf, input)).toMatchObject({ status: "completed", output: 2 });
});
