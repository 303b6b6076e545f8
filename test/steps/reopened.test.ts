import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { z } from "zod";
import type { Journal } from "../../core/journal/journal.ts";
import { deadlineIn } from "../../core/lock/duration.ts";
import { createRuntime, TerminalError } from "../../core/steps/index.ts";
import type { WorkflowContext } from "../../core/steps/workflow.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { flow } from "../support/flow.ts";

const input = { n: 1 };
const refused = () => new TerminalError("REFUSED", "no", { effect: "none" });

function newRuntime() {
  return createRuntime({ journal: memoryJournal(), locks: memoryLocks() });
}

test("a patch stays false in a retried run whose old code has passed it", async () => {
  const log: string[] = [];
  let isDown = true;
  const named = { name: "patched" };
  const version = (isNew: boolean) =>
    flow(async (ctx) => {
      const note = (text: string) => async () => log.push(text);
      await ctx.step("reserve", note("reserve"), note("undo"));
      const isPatched = isNew && (await ctx.patched("v2"));
      await ctx.step(isPatched ? "charge-v2" : "charge-v1", note(isPatched ? "v2" : "v1"));
      await ctx.waitFor("go", z.null());
      await ctx.step("ship", { retry: false }, async () => {
        if (isDown) throw refused();
      });
      return isNew && (await ctx.patched("later"));
    }, named);
  const journal = memoryJournal();
  const old = createRuntime({ journal });
  await old.execute(version(false), input, { id: "a" });
  await old.signal("a", "go", null, { dedupeId: "1" });
  const now = createRuntime({ journal });
  const wf = version(true);
  expect(await now.execute(wf, input, { id: "a" })).toMatchObject({ status: "failed" });
  isDown = false;
  await now.retry("a");
  expect(await now.execute(wf, input, { id: "a" })).toMatchObject({ output: true });
  expect(log).toEqual(["reserve", "v1", "undo", "reserve"]);
});

/** Charges the winner of a race, fails, and is retried. Resolves to the output, and to what was charged. */
async function retriedRace(race: (ctx: WorkflowContext, isRetry: boolean) => Raced) {
  const charged: string[] = [];
  let isDown = true;
  const wf = flow(async (ctx) => {
    // Its undo supersedes all that comes after it.
    await ctx.step(
      "reserve",
      async () => {},
      async () => {},
    );
    const { slow, other } = race(ctx, !isDown);
    const won = await Promise.race([slow, other]);
    await ctx.step(`charge ${won}`, async () => charged.push(won));
    await slow;
    await ctx.step("ship", { retry: false }, async () => {
      if (isDown) throw refused();
    });
    return won;
  });
  const rt = newRuntime();
  expect(await rt.execute(wf, input, { id: "a" })).toMatchObject({ status: "failed" });
  isDown = false;
  await rt.retry("a");
  return { outcome: await rt.execute(wf, input, { id: "a" }), charged };
}

type Raced = Readonly<Record<"slow" | "other", Promise<string>>>;

test("a race of recorded steps has the same winner after a retry", async () => {
  const { outcome, charged } = await retriedRace((ctx) => ({
    slow: ctx.step("slow", async () => sleep(50, "slow")),
    other: ctx.step("fast", async () => "fast"),
  }));
  expect(outcome).toMatchObject({ output: "fast" });
  expect(charged).toEqual(["fast"]);
});

test("a race has the same winner although a branch awaits something of its own between its steps", async () => {
  const { outcome, charged } = await retriedRace((ctx, isRetry) => {
    const branch = async () => {
      await ctx.step("a", async () => {});
      await sleep(isRetry ? 50 : 0);
      return ctx.step("b", async () => "branch");
    };
    return { slow: ctx.step("slow", async () => sleep(200, "slow")), other: branch() };
  });
  expect(outcome).toMatchObject({ output: "branch" });
  expect(charged).toEqual(["branch"]);
});

test("a retry with many results to repeat stops when its caller says so, and goes on later", async () => {
  let isDown = true;
  const memory = memoryJournal();
  const append: Journal["append"] = async (...given) => {
    await sleep(isDown ? 0 : 10);
    return memory.append(...given);
  };
  const rt = createRuntime({ journal: Object.assign(Object.create(memory), { append }) });
  const items = Array.from({ length: 200 }, (_, i) => i);
  const wf = flow(async (ctx) => {
    await ctx.step(
      "reserve",
      async () => {},
      async () => {},
    );
    await Promise.all(items.map((i) => ctx.step(`item ${i}`, async () => i)));
    await ctx.step("ship", { retry: false }, async () => {
      if (isDown) throw refused();
    });
  });
  await rt.execute(wf, input, { id: "a" });
  isDown = false;
  await rt.retry("a");
  const stop = new AbortController();
  setTimeout(() => stop.abort(), 100);
  const stopped = await rt.execute(wf, input, { id: "a", signal: stop.signal });
  expect(stopped).toMatchObject({ status: "suspended", reason: "deadline" });
  const { records = [] } = (await memory.show("a")) ?? {};
  expect(records.filter(({ key }) => key.startsWith("item ")).length).toBeLessThan(150);
  expect(await rt.execute(wf, input, { id: "a" })).toMatchObject({ status: "completed" });
});

test("a patch stays false in a retried run although the step that failed is called before it", async () => {
  const log: string[] = [];
  let isDown = true;
  const named = { name: "concurrent" };
  const version = (isNew: boolean) =>
    flow(async (ctx) => {
      const note = (text: string) => async () => log.push(text);
      const ship = ctx.step("ship", { retry: false }, async () => {
        await sleep(50);
        if (isDown) throw refused();
      });
      const branch = async () => {
        await ctx.step("reserve", note("reserve"), note("undo"));
        const isPatched = isNew && (await ctx.patched("v2"));
        await ctx.step(isPatched ? "charge-v2" : "charge-v1", note(isPatched ? "v2" : "v1"));
      };
      await Promise.all([ship, branch()]);
    }, named);
  const journal = memoryJournal();
  const rt = createRuntime({ journal });
  expect(await rt.execute(version(false), input, { id: "a" })).toMatchObject({ status: "failed" });
  isDown = false;
  const now = createRuntime({ journal });
  await now.retry("a");
  expect(await now.execute(version(true), input, { id: "a" })).toMatchObject({
    status: "completed",
  });
  expect(log).toEqual(["reserve", "v1", "undo", "reserve"]);
});

test("a step that only reads leaves nothing unclear, also when a cancelled retry does not reach it", async () => {
  let waits = false;
  const wf = flow(async (ctx) => {
    if (waits) await ctx.waitFor("never", z.null());
    await ctx.step("read", { effect: "none", retry: false }, async () => {
      throw new Error("socket hang up");
    });
  });
  const rt = newRuntime();
  expect(await rt.execute(wf, input, { id: "a" })).toMatchObject({ compensated: "yes" });
  waits = true;
  await rt.retry("a");
  await rt.execute(wf, input, { id: "a" });
  await rt.cancel("a");
  expect(await rt.execute(wf, input, { id: "a" })).toMatchObject({ compensated: "yes" });
});

const charge = (fail: (attempt: number) => unknown) => {
  let attempts = 0;
  return (ctx: WorkflowContext) =>
    ctx.step("charge", { retry: false }, async () => {
      attempts += 1;
      const error = fail(attempts);
      if (error) throw error;
    });
};

test("a step of unknown effect stays unclear after a retry in which it fails without effect", async () => {
  const wf = flow(charge((attempt) => (attempt === 1 ? new Error("socket hang up") : refused())));
  const rt = newRuntime();
  const ended = () => rt.execute(wf, input, { id: "a" });
  expect(await ended()).toMatchObject({ status: "failed", compensated: "unclear" });
  await rt.retry("a");
  expect(await ended()).toMatchObject({
    error: { message: expect.stringContaining("no") },
    compensated: "unclear",
  });
});

test("a step of unknown effect stays unclear after a retry that is cancelled before it reaches the step", async () => {
  let isRetry = false;
  const again = charge(() => new Error("socket hang up"));
  const wf = flow(async (ctx) => {
    if (isRetry) await ctx.waitFor("never", z.null());
    await again(ctx);
  });
  const rt = newRuntime();
  const ended = () => rt.execute(wf, input, { id: "a" });
  expect(await ended()).toMatchObject({ compensated: "unclear" });
  isRetry = true;
  await rt.retry("a");
  expect(await ended()).toMatchObject({ status: "suspended" });
  await rt.cancel("a");
  expect(await ended()).toMatchObject({ error: { code: "RUN_CANCELLED" }, compensated: "unclear" });
});

test("a step of unknown effect is settled by its undo, or by a later attempt that is done", async () => {
  let attempts = 0;
  let isDown = true;
  let waits = false;
  const wf = flow(async (ctx) => {
    if (waits) await ctx.waitFor("never", z.null());
    await ctx.step(
      "undone",
      { retry: false },
      async () => {
        attempts += 1;
        if (attempts === 1) throw new Error("socket hang up");
      },
      async () => {},
    );
    await ctx.step("ship", { retry: false }, async () => {
      if (isDown) throw refused();
    });
    await ctx.waitFor("never", z.null());
  });
  const rt = newRuntime();
  const ended = () => rt.execute(wf, input, { id: "a" });
  expect(await ended()).toMatchObject({ compensated: "yes" });
  await rt.retry("a");
  expect(await ended()).toMatchObject({ compensated: "yes" });
  isDown = false;
  for (const isEarly of [false, true]) {
    waits = isEarly;
    await rt.retry("a");
    expect(await ended()).toMatchObject({ status: "suspended" });
    await rt.cancel("a");
    expect(await ended()).toMatchObject({ compensated: "yes" });
  }
});

test("an undo is tried again although its step is tried once, and waits for a busy lock although its step does not", async () => {
  const log: string[] = [];
  const locks = memoryLocks();
  const rt = createRuntime({ journal: memoryJournal(), locks });
  let unbooked = 0;
  const busy = { names: "sku", onBusy: "fail", wait: 20 } as const;
  const wf = flow(async (ctx) => {
    const note = (text: string) => async () => log.push(text);
    await ctx.step("sell", { lock: busy }, note("sell"), note("undo sell"));
    const retry = { attempts: 1, retryIf: () => false };
    await ctx.step("book", { retry }, note("book"), async () => {
      log.push("undo book");
      unbooked += 1;
      if (unbooked === 1) throw new Error("reset");
    });
    await ctx.step("ship", { retry: false }, async () => {
      const other = await locks.lock("sku", { ttl: 10_000, wait: 0 });
      setTimeout(() => other.unlock(), 200);
      throw refused();
    });
  });
  expect(await rt.run(wf, input, { id: "a" })).toMatchObject({ compensated: "yes" });
  expect(log).toEqual(["sell", "book", "undo book", "undo book", "undo sell"]);
});

test("a replay that is slow at the end of an invocation parks the run, and does not block it", async () => {
  let pause = 0;
  const wf = flow(async (ctx) => {
    const branch = async () => {
      await sleep(pause);
      await ctx.step("a", async () => 1);
    };
    await Promise.all([branch(), ctx.waitFor("go", z.null())]);
  });
  const rt = newRuntime();
  await rt.execute(wf, input, { id: "a" });
  await rt.signal("a", "go", null, { dedupeId: "1" });
  pause = 400;
  const outcome = await rt.execute(wf, input, { id: "a", deadline: deadlineIn(300) });
  expect(outcome).toMatchObject({ status: "suspended", reason: "deadline" });
  expect(await rt.execute(wf, input, { id: "a" })).toMatchObject({ status: "completed" });
});

test("changed code blocks its run also in a short invocation, and the run stays blocked", async () => {
  const named = { name: "changed" };
  const journal = memoryJournal();
  const old = flow(async (ctx) => {
    await ctx.step("a", async () => 1);
    await ctx.waitFor("go", z.null());
  }, named);
  await createRuntime({ journal }).execute(old, input, { id: "a" });
  const changed = flow(async (ctx) => ctx.step("b", async () => 1), named);
  const rt = createRuntime({ journal });
  await rt.signal("a", "go", null, { dedupeId: "1" });
  for (const span of [1_500, 300]) {
    const outcome = await rt.execute(changed, input, { id: "a", deadline: deadlineIn(span) });
    expect(outcome).toMatchObject({ status: "blocked", error: { code: "NON_DETERMINISM" } });
  }
});

test("a lock of a map that cannot be named fails its item, and the map waits for the others", async () => {
  const done: number[] = [];
  const wf = flow(async (ctx) => {
    const lock = (item: number) => {
      if (item === 2) throw new Error("no sku");
      return `lock ${item}`;
    };
    const options = { keyOf: String, concurrency: 2, lock };
    const mapped = ctx.step.map("m", [1, 2, 3, 4], options, async (item) => {
      await sleep(20);
      done.push(item);
    });
    await mapped.catch((error) => expect(error.message).toContain("no sku"));
    const before = [...done];
    const collected = await ctx.step.map(
      "c",
      [1, 2],
      { ...options, onError: "collect" },
      async () => 1,
    );
    return [before, collected.map(({ status }) => status)];
  });
  expect(await newRuntime().run(wf, input, { id: "a" })).toMatchObject({
    output: [[1], ["fulfilled", "rejected"]],
  });
});
