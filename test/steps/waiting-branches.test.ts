import { describe, expect, test, vi } from "vitest";
import { z } from "zod";
import { createRuntime, TerminalError, type WorkflowContext } from "../../core/steps/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { flow, signalled } from "../support/flow.ts";
import { finish, useVirtualClock } from "../support/timers.ts";

const input = { n: 1 };
const STEPS = 40;

/** A runtime with short leases that counts how often runs were parked. */
function countingRuntime() {
  const parked = vi.fn();
  const journal = memoryJournal();
  const runtime = createRuntime({
    journal,
    lease: 300,
    onEvent: (event) => event.type === "parked" && parked(),
  });
  return { runtime, journal, parked };
}

/** Races `wait` with steps of 100 ms, which end with the race. `onBegun` gets the number of each step, from 0. */
async function raceWithSteps<T>(
  ctx: WorkflowContext,
  wait: Promise<T>,
  onBegun = async (_: number) => {},
): Promise<T | "steps"> {
  let isOver = false;
  const steps = async () => {
    for (let i = 0; i < STEPS && !isOver; i += 1) {
      await ctx.step(`step-${i}`, async () => {
        await onBegun(i);
        await new Promise((resolve) => setTimeout(resolve, 100));
      });
    }
    return "steps" as const;
  };
  const first = await Promise.race([wait, steps()]);
  isOver = true;
  return first;
}

describe("a branch that waits beside a branch of many steps", () => {
  useVirtualClock();

  test("goes on when its sleep is over", async () => {
    const { runtime, parked } = countingRuntime();
    const begun = vi.fn();
    const wf = flow((ctx) =>
      raceWithSteps(
        ctx,
        ctx.sleep("limit", 1_500).then(() => "limit"),
        async (i) => begun(i),
      ),
    );
    const outcome = await finish(runtime.execute(wf, input, { id: "sleep" }));
    expect(outcome).toMatchObject({ status: "completed", output: "limit" });
    expect(begun.mock.calls.length).toBeLessThan(25);
    expect(parked).not.toHaveBeenCalled();
  });

  test("repeats a step after a long pause between attempts", async () => {
    const { runtime, parked } = countingRuntime();
    const begun = vi.fn();
    const retry = { base: 1_500, jitter: "none" } as const;
    const wf = flow((ctx) => {
      const retried = ctx.step("retried", { retry }, async ({ attempt }) => {
        if (attempt === 1) throw new Error("away");
        return "retried";
      });
      return raceWithSteps(ctx, retried, async (i) => begun(i));
    });
    const outcome = await finish(runtime.execute(wf, input, { id: "retried" }));
    expect(outcome).toMatchObject({ status: "completed", output: "retried" });
    expect(begun.mock.calls.length).toBeLessThan(25);
    expect(parked).not.toHaveBeenCalled();
  });

  test("goes on when the timeout of its signal is over", async () => {
    const { runtime } = countingRuntime();
    const begun = vi.fn();
    const wf = flow((ctx) =>
      raceWithSteps(ctx, ctx.waitFor("stop", z.string(), { timeout: 1_500 }), async (i) =>
        begun(i),
      ),
    );
    const outcome = await finish(runtime.execute(wf, input, { id: "timeout" }));
    expect(outcome).toMatchObject({ status: "completed", output: { timedOut: true } });
    expect(begun.mock.calls.length).toBeLessThan(25);
  });

  test("receives a signal that is sent after the first step", async () => {
    const { runtime, parked } = countingRuntime();
    const begun = vi.fn();
    const onBegun = async (i: number) => {
      begun();
      if (i === 1) await runtime.signal("signal", "stop", "now", { dedupeId: "1" });
    };
    const wf = flow((ctx) => raceWithSteps(ctx, ctx.waitFor("stop", z.string()), onBegun));
    const outcome = await finish(runtime.execute(wf, input, { id: "signal" }));
    expect(outcome).toMatchObject({ status: "completed", output: "now" });
    expect(begun.mock.calls.length).toBeLessThan(10);
    expect(parked).toHaveBeenCalledTimes(1);
  });

  test("receives a signal that is sent before its timeout and after the last renewal", async () => {
    const journal = memoryJournal();
    const runtime = createRuntime({ journal, lease: 60_000 });
    const onBegun = async (i: number) => {
      if (i === 5) await runtime.signal("before", "stop", "now", { dedupeId: "1" });
    };
    const wf = flow((ctx) =>
      raceWithSteps(ctx, ctx.waitFor("stop", z.string(), { timeout: 1_500 }), onBegun),
    );
    const outcome = await finish(runtime.execute(wf, input, { id: "before" }));
    expect(outcome).toMatchObject({ status: "completed", output: "now" });
  });

  test("answers an update that is sent after the first step", async () => {
    const { runtime } = countingRuntime();
    const begun = vi.fn();
    let answer: Promise<unknown> | undefined;
    const onBegun = async (i: number) => {
      begun();
      if (i === 1) answer = runtime.update("update", "add", 2, { dedupeId: "1" });
    };
    const wf = signalled({ add: z.number() }, (ctx) =>
      raceWithSteps(
        ctx,
        ctx.answer("add", async (n) => n + 1),
        onBegun,
      ),
    );
    const outcome = await finish(runtime.execute(wf, input, { id: "update" }));
    expect(outcome).toMatchObject({ status: "completed", output: 3 });
    expect(await answer).toEqual({ status: "answered", output: 3 });
    expect(begun.mock.calls.length).toBeLessThan(10);
  });

  test("gets the result of a child that ends meanwhile", async () => {
    const { runtime, journal } = countingRuntime();
    const begun = vi.fn();
    const child = flow(async () => "child");
    const onBegun = async (i: number) => {
      begun();
      if (i !== 1) return;
      const [run] = await runtime.claimDue({ limit: 1 });
      await run?.execute();
    };
    const wf = flow((ctx) => raceWithSteps(ctx, ctx.child("part", child, input), onBegun));
    const outcome = await finish(runtime.execute(wf, input, { id: "parent" }));
    expect(outcome).toMatchObject({ status: "completed", output: "child" });
    expect(begun.mock.calls.length).toBeLessThan(10);
    expect(await journal.list({})).toHaveLength(2);
  });

  test("parks the run once for a signal that nobody awaits, and the steps go on", async () => {
    const { runtime, journal, parked } = countingRuntime();
    const append = vi.spyOn(journal, "append");
    const onBegun = async (i: number) => {
      if (i === 1) await runtime.signal("other", "other", null, { dedupeId: "1" });
    };
    const wf = flow((ctx) => raceWithSteps(ctx, ctx.waitFor("stop", z.string()), onBegun));
    const outcome = await finish(runtime.execute(wf, input, { id: "other" }));
    expect(outcome).toMatchObject({ status: "completed", output: "steps" });
    expect(parked).toHaveBeenCalledTimes(1);
    expect(append).toHaveBeenCalledTimes(STEPS);
  });

  test("parks the run for no signal while it sleeps", async () => {
    const { runtime, parked } = countingRuntime();
    const onBegun = async (i: number) => {
      if (i === 1) await runtime.signal("asleep", "other", null, { dedupeId: "1" });
    };
    const wf = flow((ctx) => raceWithSteps(ctx, ctx.sleep("limit", "1h"), onBegun));
    const outcome = await finish(runtime.execute(wf, input, { id: "asleep" }));
    expect(outcome).toMatchObject({ status: "completed", output: "steps" });
    expect(parked).not.toHaveBeenCalled();
  });

  test("does not delay the undos of a run that fails after its signal has come", async () => {
    const { runtime, parked } = countingRuntime();
    const undo = vi.fn(async () => {});
    const wf = flow(async (ctx) => {
      await ctx.step("reserve", async () => {}, undo);
      const failing = ctx.step("pay", async () => {
        await runtime.signal("failed", "stop", "now", { dedupeId: "1" });
        await new Promise((resolve) => setTimeout(resolve, 2_000));
        throw new TerminalError("DECLINED", "no money", { effect: "none" });
      });
      await Promise.race([ctx.waitFor("stop", z.string()), failing]);
    });
    const outcome = await finish(runtime.execute(wf, input, { id: "failed" }));
    expect(outcome).toMatchObject({ status: "failed", compensated: "yes" });
    expect(undo).toHaveBeenCalledTimes(1);
    expect(parked).not.toHaveBeenCalled();
  });

  test("does not delay a cancellation after its signal has come", async () => {
    const { runtime, parked } = countingRuntime();
    const undo = vi.fn(async () => {});
    const wf = flow(async (ctx) => {
      await ctx.step("reserve", async () => {}, undo);
      const cancelling = async () => {
        await ctx.step("cancel", async () => {
          await runtime.signal("cancelled", "stop", "now", { dedupeId: "1" });
          await new Promise((resolve) => setTimeout(resolve, 2_000));
          await runtime.cancel("cancelled");
        });
        await ctx.step("never", async () => {});
      };
      await Promise.race([ctx.waitFor("stop", z.string()), cancelling()]);
    });
    const outcome = await finish(runtime.execute(wf, input, { id: "cancelled" }));
    expect(outcome).toMatchObject({ status: "failed", error: { code: "RUN_CANCELLED" } });
    expect(undo).toHaveBeenCalledTimes(1);
    expect(parked).not.toHaveBeenCalled();
  });
});
