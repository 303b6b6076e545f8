import { setTimeout as sleep } from "node:timers/promises";
import { expect, test, vi } from "vitest";
import { z } from "zod";
import { deadlineIn } from "../../core/lock/duration.ts";
import { StoreUnavailableError } from "../../core/lock/errors.ts";
import { createRuntime, workflow } from "../../core/steps/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { flow } from "../support/flow.ts";
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
