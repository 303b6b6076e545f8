import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { deadlineIn } from "../../core/lock/duration.ts";
import {
  createRuntime,
  type RunEvent,
  TerminalError,
  type WorkflowContext,
} from "../../core/steps/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { openSqlite } from "../../core/stores/sqlite/index.ts";
import { flow, resume, untilResumed } from "../support/flow.ts";

const input = { n: 1 };

describe.concurrent("a run whose code awaits something of its own", () => {
  test("goes on when a replay reaches the next recorded step after 1.5 s", async () => {
    const rt = createRuntime({ journal: memoryJournal() });
    let isResumed = false;
    const wf = flow(async (ctx) => {
      const slow = async () => {
        if (isResumed) await sleep(1_500);
        await ctx.step("a", async () => {});
      };
      const other = async () => {
        await ctx.sleep("nap", "1h");
      };
      await Promise.all([slow(), other()]);
    });
    await rt.execute(wf, input, { id: "r" });
    isResumed = true;
    await rt.signal("r", "wake", 1, { dedupeId: "1" });
    expect(await rt.execute(wf, input, { id: "r" })).toMatchObject({ status: "suspended" });
  });
});

describe.concurrent("a blocked run", () => {
  const wake = (rt: ReturnType<typeof createRuntime>, dedupeId: number) =>
    rt.signal("r", "wake", 1, { dedupeId: String(dedupeId) });

  test("is tried again after pauses that double, until it makes progress", async () => {
    const events: RunEvent[] = [];
    const rt = createRuntime({ journal: memoryJournal(), onEvent: (event) => events.push(event) });
    let name = "a";
    const isLonger = false;
    const wf = flow(async (ctx) => {
      await ctx.step(name, async () => {});
      if (isLonger) await ctx.step("more", async () => {});
      await ctx.sleep("nap", "1h");
    });
    await rt.execute(wf, input, { id: "r" });
    const pauses: number[] = [];
    const tryOnce = async (i: number) => {
      await wake(rt, i);
      const outcome = await rt.execute(wf, input, { id: "r", deadline: deadlineIn(4_000) });
      if (outcome.status === "blocked") pauses.push(outcome.retryIn);
    };
    name = "b";
    for (let i = 0; i < 3; i += 1) await tryOnce(i);
    expect(pauses).toEqual([5_000, 10_000, 20_000]);
    expect(events.filter(({ type }) => type === "blocked")).toHaveLength(3);
    name = "a";
    await tryOnce(3);
    name = "b";
    await tryOnce(4);
    expect(pauses.at(-1)).toBe(5_000);
  });

  test("is undone after a cancellation, once its code fits again", async () => {
    const rt = createRuntime({ journal: memoryJournal() });
    let name = "a";
    const undone: string[] = [];
    const wf = flow(async (ctx) => {
      await ctx.step(
        name,
        async () => {},
        async () => undone.push("a"),
      );
      await ctx.sleep("nap", "1h");
    });
    await rt.execute(wf, input, { id: "r" });
    name = "b";
    await rt.cancel("r");
    const options = { id: "r", deadline: deadlineIn(4_000) };
    expect(await rt.execute(wf, input, options)).toMatchObject({ status: "blocked" });
    expect(undone).toEqual([]);
    name = "a";
    await wake(rt, 1);
    expect(await rt.execute(wf, input, { id: "r" })).toMatchObject({
      ...{ status: "failed", error: { code: "RUN_CANCELLED" }, compensated: "yes" },
    });
    expect(undone).toEqual(["a"]);
  });

  test("does not let the workflow's code take the mismatch for a failed step", async () => {
    const rt = createRuntime({ journal: memoryJournal() });
    let kind: "step" | "sleep" = "step";
    const caught: unknown[] = [];
    const wf = flow(async (ctx) => {
      if (kind === "step") await ctx.step("a", async () => {});
      else await ctx.sleep("a", 1).catch((error) => caught.push(error));
      await ctx.sleep("nap", "1h");
      throw new TerminalError("NO");
    });
    await rt.execute(wf, input, { id: "r" });
    kind = "sleep";
    await wake(rt, 1);
    expect(await rt.execute(wf, input, { id: "r" })).toMatchObject({ status: "blocked" });
  });

  test("is not what becomes of a run whose processes crash after each step", async () => {
    const journal = memoryJournal();
    const rt = createRuntime({ journal });
    const names = ["a", "b", "c", "d", "e"];
    const wf = flow(
      async (ctx) => {
        for (const name of names) await ctx.step(name, async () => {});
        return "end";
      },
      { maxCrashes: 2 },
    );
    await rt.start(wf, input, { id: "r" });
    for (const key of names.slice(0, 4)) {
      const taken = await journal.take({ runId: "r", owner: "dies", ttl: 10 });
      if (taken.kind !== "claimed") throw new Error(`not claimed but ${taken.kind}`);
      const record = { key, kind: "step", outcome: "ok", attempt: 1, value: undefined } as const;
      await journal.append({ runId: "r", epoch: taken.epoch }, record);
      await sleep(20);
    }
    expect(await rt.resume("r")).toMatchObject({ status: "completed", output: "end" });
  });
});

describe.concurrent("a process that lacks what a step needs", () => {
  /** A step whose undo is noted. */
  const reserve = (ctx: WorkflowContext, undone: string[]) =>
    ctx.step(
      "reserve",
      async () => {},
      async () => undone.push("reserve"),
    );

  test("blocks the run of a step with a lock when it has no lock store, and another process completes the run", async () => {
    const journal = memoryJournal();
    const undone: string[] = [];
    const wf = flow(async (ctx) => {
      await reserve(ctx, undone);
      return ctx.step("charge", { lock: "a" }, async () => "charged").catch(() => "caught");
    });
    const without = createRuntime({ journal });
    const blocked = { status: "blocked", error: { code: "NO_LOCKS" } };
    expect(await without.execute(wf, input, { id: "r" })).toMatchObject(blocked);
    expect(undone).toEqual([]);
    const other = createRuntime({ journal, locks: memoryLocks() });
    await other.retry("r");
    expect(await other.execute(wf, input, { id: "r" })).toMatchObject({ output: "charged" });
  });

  test("blocks the run of a step.tx when its journal has no transactions, and another process completes the run", async () => {
    await using shop = await openSqlite(":memory:");
    const { journal, locks } = shop;
    const undone: string[] = [];
    const wf = flow(async (ctx) => {
      await reserve(ctx, undone);
      return ctx.step.tx("charge", { lock: "a" }, async () => "charged");
    });
    const without = createRuntime({ journal: { ...journal, transact: undefined }, locks });
    const blocked = { status: "blocked", error: { code: "NO_DATABASE" } };
    expect(await without.execute(wf, input, { id: "r" })).toMatchObject(blocked);
    expect(undone).toEqual([]);
    const other = createRuntime({ journal, locks });
    await other.retry("r");
    expect(await other.execute(wf, input, { id: "r" })).toMatchObject({ output: "charged" });
  });

  test("fails no undo with a lock when it has no lock store, and another process calls the undo", async () => {
    const journal = memoryJournal();
    const undone: string[] = [];
    const wf = flow(async (ctx) => {
      await ctx.step(
        "reserve",
        { lock: "a" },
        async () => {},
        async () => undone.push("reserve"),
      );
      await untilResumed(ctx);
      throw new TerminalError("NO");
    });
    const other = createRuntime({ journal, locks: memoryLocks() });
    await other.execute(wf, input, { id: "r" });
    await resume(other, "r");
    const blocked = { status: "blocked", error: { code: "NO_LOCKS" } };
    expect(await createRuntime({ journal }).execute(wf, input, { id: "r" })).toMatchObject(blocked);
    await other.retry("r");
    expect(await other.execute(wf, input, { id: "r" })).toMatchObject({
      ...{ status: "failed", error: { code: "NO" }, compensated: "yes" },
    });
    expect(undone).toEqual(["reserve"]);
  });
});
