import { setTimeout as sleep } from "node:timers/promises";
import { expect, test, vi } from "vitest";
import { z } from "zod";
import { deadlineIn } from "../../core/lock/duration.ts";
import { StoreUnavailableError } from "../../core/lock/errors.ts";
import { createRuntime, type WorkflowContext, workflow } from "../../core/steps/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { flow, resume, untilResumed } from "../support/flow.ts";
import { within } from "../support/until.ts";

const input = { n: 1 };

/** Calls that code may make which catches each error: far more than it is to make. */
const MOST_CALLS = 20_000;

/** Calls again and again, whatever the answer, but not without an end. Counts the calls. */
async function insist(counts: { calls: number }, call: () => Promise<unknown>): Promise<void> {
  while (counts.calls < MOST_CALLS) {
    counts.calls += 1;
    await call().catch(() => {});
  }
}

test("a replay that is late in the last moments parks its run, although the body has ended early", async () => {
  const runtime = createRuntime({ journal: memoryJournal() });
  const undo = vi.fn(async () => {});
  let fails = false;
  const ownIO = async () => {
    if (!fails) return;
    await sleep(30);
    throw new Error("ECONNRESET");
  };
  const wf = flow(async (ctx) => {
    await Promise.race([ctx.waitFor("stop", z.null()), ownIO()]);
    await ctx.step("charge", async () => 1, undo);
    await ctx.waitFor("go", z.null());
  });
  await runtime.execute(wf, input, { id: "r" });
  fails = true;
  await runtime.signal("r", "go", null, { dedupeId: "1" });
  const outcome = await runtime.execute(wf, input, { id: "r", deadline: deadlineIn(300) });
  expect(outcome).toMatchObject({ status: "suspended", reason: "deadline" });
  expect(undo).not.toHaveBeenCalled();
  fails = false;
  expect(await runtime.execute(wf, input, { id: "r" })).toMatchObject({ status: "completed" });
});

test("changed code that catches each error and calls again blocks its run, and not the event loop", async () => {
  const runtime = createRuntime({ journal: memoryJournal() });
  const counts = { calls: 0 };
  let isChanged = false;
  const wf = flow(async (ctx) => {
    if (isChanged) return insist(counts, () => ctx.sleep("a", 5));
    await ctx.step("a", async () => 1);
    await ctx.waitFor("go", z.null());
  });
  await runtime.execute(wf, input, { id: "r" });
  isChanged = true;
  await runtime.signal("r", "go", null, { dedupeId: "1" });
  const outcome = await runtime.execute(wf, input, { id: "r" });
  expect(outcome).toMatchObject({ status: "blocked", error: { code: "NON_DETERMINISM" } });
  expect(counts.calls).toBeLessThan(3);
});

test("two calls of one name that are repeated after each error block their run, and not the event loop", async () => {
  const runtime = createRuntime({ journal: memoryJournal() });
  const counts = { calls: 0 };
  const wf = flow(async (ctx) => {
    const dup = () => insist(counts, () => ctx.step("dup", () => sleep(5)));
    await Promise.all([dup(), dup()]);
  });
  const outcome = await runtime.execute(wf, input, { id: "r" });
  expect(outcome).toMatchObject({ status: "blocked", error: { code: "MISUSE" } });
  expect(counts.calls).toBeLessThan(5);
});

test("a cancelled run that repeats continueAsNew after each error ends, and keeps no event loop", async () => {
  const runtime = createRuntime({ journal: memoryJournal() });
  const counts = { calls: 0 };
  const wf = flow(async (ctx) => {
    await ctx.waitFor("go", z.null()).catch(() => {});
    await insist(counts, () => ctx.continueAsNew({ n: 2 }));
  });
  await runtime.execute(wf, input, { id: "r" });
  await runtime.signal("r", "go", null, { dedupeId: "1" });
  await runtime.cancel("r");
  const outcome = await within(60_000, runtime.execute(wf, input, { id: "r" }));
  expect(outcome).toMatchObject({ status: "failed", error: { code: "RUN_CANCELLED" } });
  expect(counts.calls).toBeLessThan(2_000);
});

test("a body that catches the error of its run's timeout and returns does not complete", async () => {
  const runtime = createRuntime({ journal: memoryJournal() });
  const undo = vi.fn(async () => {});
  const wf = flow(
    async (ctx) => {
      await ctx.step("reserve", () => sleep(600), undo);
      await ctx.step("charge", async () => {}).catch(() => {});
      return "caught";
    },
    { timeout: 500 },
  );
  expect(await runtime.execute(wf, input)).toMatchObject({
    ...{ status: "failed", error: { code: "RUN_TIMEOUT" }, compensated: "yes" },
  });
  expect(undo).toHaveBeenCalledTimes(1);
});

test("a run is not parked while the input of its next history is validated", async () => {
  const slow = z.object({ n: z.number() }).refine(async () => {
    await sleep(60);
    return true;
  });
  const named = { name: "slow-input", version: 1, input: slow };
  const wf = workflow(named, async (ctx, { n }): Promise<unknown> => {
    if (n === 2) return "second";
    return Promise.all([ctx.waitFor("never", z.null()), ctx.continueAsNew({ n: 2 })]);
  });
  const runtime = createRuntime({ journal: memoryJournal() });
  expect(await runtime.execute(wf, input, { id: "r" })).toMatchObject({ output: "second" });
});

test("an undo whose large result cannot be read fails with the error of the journal", async () => {
  const journal = memoryJournal();
  vi.spyOn(journal, "values").mockRejectedValue(new StoreUnavailableError("j", "gone"));
  const wf = flow(async (ctx) => {
    await ctx.step(
      "large",
      async () => "x".repeat(300_000),
      async () => {},
    );
    throw new Error("failed");
  });
  const executing = createRuntime({ journal }).execute(wf, input);
  await expect(executing).rejects.toBeInstanceOf(StoreUnavailableError);
});

test("calls that a branch makes after the body has failed do not stop the undos", async () => {
  const runtime = createRuntime({ journal: memoryJournal() });
  const wf = flow(async (ctx) => {
    await ctx.step(
      "paid",
      async () => 1,
      () => sleep(100),
    );
    const late = async (span: number) => {
      await sleep(span);
      await ctx.step("dup", () => sleep(50));
    };
    void late(50).catch(() => {});
    void late(60).catch(() => {});
    throw new Error("failed");
  });
  const outcome = await runtime.execute(wf, input, { id: "r" });
  expect(outcome).toMatchObject({ status: "failed", compensated: "yes" });
});

/** A schema whose validation never settles. */
const hanging = z.object({ n: z.number() }).refine(() => new Promise<boolean>(() => {}));
const hangingChild = workflow({ name: "hanging", version: 1, input: hanging }, async () => 1);

test.for<readonly [string, (ctx: WorkflowContext) => Promise<unknown>]>([
  ["a step's result", (ctx) => ctx.step("a", { output: hanging }, async () => input)],
  ["a signal's payload", (ctx) => ctx.waitFor("go", hanging)],
  ["a child's input", (ctx) => ctx.child("a", hangingChild, input)],
])(
  "a run is parked at its deadline, and cancelled at once, while the schema of %s does not answer",
  async ([, call]) => {
    const runtime = createRuntime({ journal: memoryJournal() });
    const wf = flow(call);
    await runtime.start(wf, input, { id: "r" });
    await runtime.signal("r", "go", input, { dedupeId: "1" });
    const executing = runtime.execute(wf, input, { id: "r", deadline: deadlineIn(300) });
    expect(await within(20_000, executing)).toMatchObject({ status: "suspended" });
    const again = runtime.execute(wf, input, { id: "r" });
    await sleep(50);
    await runtime.cancel("r");
    expect(await within(20_000, again)).toMatchObject({ error: { code: "RUN_CANCELLED" } });
  },
);

test("a run is parked at its deadline while the schema of its next input does not answer", async () => {
  const runtime = createRuntime({ journal: memoryJournal() });
  const slow = z.object({ n: z.number() }).refine(({ n }) => n === 1 || new Promise(() => {}));
  const named = { name: "hanging-next-input", version: 1, input: slow };
  const wf = workflow(named, async (ctx) => ctx.continueAsNew({ n: 2 }));
  const executing = runtime.execute(wf, input, { id: "r", deadline: deadlineIn(300) });
  expect(await within(20_000, executing)).toMatchObject({ status: "suspended" });
});

test("the timeout of a step bounds its schema as well", async () => {
  const runtime = createRuntime({ journal: memoryJournal() });
  const options = { output: hanging, timeout: 20, retry: false } as const;
  const wf = flow((ctx) => ctx.step("a", options, async () => input));
  const outcome = await within(20_000, runtime.execute(wf, input));
  expect(outcome).toMatchObject({ status: "failed", error: { code: "STEP_TIMEOUT" } });
});

test("the body does not get the journal's error when a recorded result cannot be read", async () => {
  const journal = memoryJournal();
  const runtime = createRuntime({ journal });
  const caught: unknown[] = [];
  const wf = flow(async (ctx) => {
    await ctx.step("large", async () => "x".repeat(300_000)).catch((error) => caught.push(error));
    await untilResumed(ctx);
  });
  await runtime.execute(wf, input, { id: "r" });
  await resume(runtime, "r");
  vi.spyOn(journal, "values").mockRejectedValue(new StoreUnavailableError("j", "gone"));
  const executing = runtime.execute(wf, input, { id: "r" });
  await expect(within(20_000, executing)).rejects.toBeInstanceOf(StoreUnavailableError);
  expect(caught).toEqual([]);
});
