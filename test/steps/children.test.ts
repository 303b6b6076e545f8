import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { childSignal } from "../../core/journal/child-result.ts";
import { StoreUnavailableError } from "../../core/lock/errors.ts";
import { encode, hashOf } from "../../core/steps/codec.ts";
import type { RuntimeOptions } from "../../core/steps/contract.ts";
import { createRuntime } from "../../core/steps/index.ts";
import { startedRecord } from "../../core/steps/records.ts";
import { injectFaults } from "../../core/steps/testing.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { flow, resume, untilResumed } from "../support/flow.ts";
import { taken } from "../support/runs.ts";
import { within } from "../support/until.ts";

const input = { n: 1 };

function runtime(options: Partial<RuntimeOptions> = {}) {
  return createRuntime({ journal: memoryJournal(), inlineWait: 5, ...options });
}

describe.concurrent("children", () => {
  test("a child with invalid input fails as a step does, also in a replay", async () => {
    const rt = runtime();
    const child = flow(async () => 1);
    const wf = flow(async (ctx) => {
      const bad = { n: "one" } as never;
      const code = await ctx.child("a", child, bad).catch((error: { code: string }) => error.code);
      await ctx.step("b", async () => {});
      await untilResumed(ctx);
      return code;
    });
    await rt.execute(wf, input, { id: "r" });
    await resume(rt, "r");
    expect(await rt.run(wf, input, { id: "r" })).toMatchObject({ output: "INVALID" });
  });

  test("a child with the id of another run fails as a step does, also in a replay", async () => {
    const rt = runtime();
    const child = flow(async () => 1);
    await rt.execute(child, { n: 5 }, { id: "taken" });
    const wf = flow(async (ctx) => {
      const options = { id: "taken" };
      const code = await ctx
        .child("a", child, input, options)
        .catch((error: { code: string }) => error.code);
      await ctx.step("b", async () => {});
      await untilResumed(ctx);
      return code;
    });
    await rt.execute(wf, input, { id: "r" });
    await resume(rt, "r");
    expect(await rt.run(wf, input, { id: "r" })).toMatchObject({ output: "INPUT_CONFLICT" });
  });

  test("a child whose journal is unavailable does not fail its parent", async () => {
    let cuts = 0;
    const journal = injectFaults(memoryJournal(), (point) => {
      const isFirst = point === "finish:before" && ++cuts === 1;
      if (isFirst) throw new StoreUnavailableError("memory:", "cut off");
    });
    const rt = runtime({ journal, lease: 3_000 });
    const child = flow(async () => "grown");
    const wf = flow(async (ctx) => ctx.child("a", child, input));
    const away = { code: "STORE_UNAVAILABLE" };
    await expect(rt.execute(wf, input, { id: "r" })).rejects.toMatchObject(away);
    expect(await rt.run(wf, input, { id: "r" })).toMatchObject({ output: "grown" });
  });

  test("a cancelled parent looks again for the end of a child that was retried", async () => {
    const rt = runtime();
    let isDown = true;
    const child = flow(async (ctx) => {
      if (isDown) throw new Error("away");
      await ctx.waitFor("never", z.string());
    });
    const parent = flow(async (ctx) => {
      await ctx.child("c", child, input).catch(() => {});
      await ctx.waitFor("go", z.string());
    });
    await rt.execute(parent, input, { id: "r" });
    expect(await rt.execute(child, input, { id: "r/c" })).toMatchObject({ status: "failed" });
    await rt.execute(parent, input, { id: "r" });
    isDown = false;
    await rt.retry("r/c");
    await rt.execute(child, input, { id: "r/c" });
    await rt.cancel("r");
    const waiting = await rt.execute(parent, input, { id: "r" });
    // The journal has told the parent the first end of the child, and tells it no other one.
    expect(waiting).toMatchObject({ status: "suspended", reason: "child" });
    expect("wakeIn" in waiting && waiting.wakeIn).toBeLessThanOrEqual(60_000);
  });

  test("a retried fan-out gets the large output of a child that was retried before", async () => {
    const rt = runtime();
    const output = '"'.repeat(400_000);
    let isDown = true;
    const child = flow(async () => {
      if (isDown) throw new Error("away");
      return output;
    });
    const parent = flow(async (ctx) => ctx.children("all", child, [input], { keyOf: () => "a" }));
    expect(await rt.run(parent, input, { id: "r" })).toMatchObject({ status: "failed" });
    isDown = false;
    await rt.retry("r/all[a]");
    await rt.run(child, input, { id: "r/all[a]" });
    await rt.retry("r");
    expect(await rt.run(parent, input, { id: "r" })).toMatchObject({ output: [output] });
  });

  test("a child is not started again when its parent resumes after the outcome was purged", async () => {
    const rt = runtime();
    let times = 0;
    const child = flow(
      async (ctx) => {
        await ctx.waitFor("go", z.boolean());
        return ++times;
      },
      { keep: 10 },
    );
    const wf = flow(async (ctx) => ctx.child("a", child, input));
    await rt.execute(wf, input, { id: "r" });
    await rt.signal("r/a", "go", true, { dedupeId: "a" });
    expect(await rt.resume("r/a")).toMatchObject({ output: 1 });
    await sleep(30);
    expect(await rt.resume("r")).toMatchObject({ status: "completed", output: 1 });
    expect(times).toBe(1);
  });

  test("a child of a run with a long id has an id", async () => {
    const rt = runtime();
    const child = flow(async () => "grown");
    const wf = flow(async (ctx) => ctx.child("a", child, input));
    expect(await rt.execute(wf, input, { id: "r".repeat(255) })).toMatchObject({ output: "grown" });
  });

  test("a cancelled child fails its parent, which is not cancelled", async () => {
    const rt = runtime();
    const child = flow(async (ctx) => ctx.waitFor("go", z.boolean()));
    const wf = flow(async (ctx) => ctx.child("a", child, input));
    await rt.execute(wf, input, { id: "r" });
    await rt.cancel("r/a");
    await rt.resume("r/a");
    await rt.resume("r");
    expect((await rt.journal.show("r"))?.status).toBe("failed");
  });

  test("a child with an id of its own answers a later call, too", async () => {
    let runs = 0;
    const child = flow(async (ctx) => ctx.step("count", async () => (runs += 1)));
    const parent = flow(async (ctx) => [
      await ctx.child("a", child, input, { id: "own" }),
      await ctx.child("b", child, input, { id: "own" }),
    ]);
    expect(await runtime().run(parent, input)).toMatchObject({ output: [1, 1] });
  });

  test("two calls with children of the same id block the run", async () => {
    const child = flow(async (_, { n }) => n);
    const keyOf = () => "b";
    const bodies: readonly Parameters<typeof flow>[0][] = [
      async (ctx) =>
        Promise.all([
          ctx.child("a[b]", child, input),
          ctx.children("a", child, [input], { keyOf }),
        ]),
      async (ctx) => {
        await ctx.children("a[b]", child, [{ n: 1 }], { keyOf: () => "c" });
        await ctx.children("a", child, [{ n: 2 }], { keyOf: () => "b][c" });
      },
      async (ctx) =>
        Promise.all([
          ctx.child("a", child, input, { id: "own" }),
          ctx.child("b", child, input, { id: "own" }),
        ]),
    ];
    for (const body of bodies) {
      const outcome = await within(20_000, runtime().run(flow(body), input));
      expect(outcome).toMatchObject({ status: "blocked", error: { code: "MISUSE" } });
      expect(outcome).toHaveProperty(["error", "message"], expect.stringContaining("which has it"));
    }
  });

  test("a run that is to be its own child is blocked", async () => {
    const wf: ReturnType<typeof flow> = flow(async (ctx) =>
      ctx.child("c", wf, input, { id: ctx.runId }),
    );
    const outcome = await within(20_000, runtime().run(wf, input, { id: "r" }));
    expect(outcome).toMatchObject({ status: "blocked", error: { code: "MISUSE" } });
  });

  test("a fan-out looks again for the end of a child that its run did not start", async () => {
    const rt = runtime();
    const child = flow(async (ctx, { n }) => {
      if (n === 2) await ctx.waitFor("go", z.number());
      return n;
    });
    const wf = flow(async (ctx) =>
      ctx.children("a", child, [{ n: 1 }, { n: 2 }], { keyOf: ({ n }) => `${n}` }),
    );
    await rt.execute(child, { n: 2 }, { id: "r/a[2]" });
    await rt.execute(wf, input, { id: "r" });
    const waiting = await rt.execute(wf, input, { id: "r" });
    expect(waiting).toMatchObject({ status: "suspended", reason: "child" });
    expect("wakeIn" in waiting && waiting.wakeIn).toBeLessThanOrEqual(60_000);
    await rt.signal("r/a[2]", "go", 1, { dedupeId: "1" });
    await rt.resume("r/a[2]");
    // Makes the run due, as the time does.
    await rt.signal("r", "wake", 1, { dedupeId: "1" });
    const outcome = await within(20_000, rt.run(wf, input, { id: "r" }));
    expect(outcome).toMatchObject({ output: [1, 2] });
  });

  test("a cancelled run whose body repeats the call of a child with an id of its own is undone", async () => {
    const rt = runtime();
    const undone: string[] = [];
    const child = flow(async (ctx) => ctx.waitFor("never", z.string()));
    const wf = flow(async (ctx) => {
      await ctx.step(
        "reserve",
        async () => {},
        async () => undone.push("reserve"),
      );
      const call = () => ctx.child("pay", child, input, { id: "own" });
      return call().catch(call);
    });
    await rt.execute(wf, input, { id: "r" });
    await rt.cancel("r");
    const cancelled = { status: "failed", error: { code: "RUN_CANCELLED" }, compensated: "yes" };
    expect(await within(20_000, rt.run(wf, input, { id: "r" }))).toMatchObject(cancelled);
    expect(await rt.journal.find("own")).toMatchObject({ status: "cancelled" });
    expect(undone).toEqual(["reserve"]);
  });

  test("children that an older version has started under unescaped ids end their calls", async () => {
    let runs = 0;
    const child = flow(async (_, { n }) => {
      runs += 1;
      return n;
    });
    const rt = runtime({ workflows: [child] });
    const { journal } = rt;
    const one = flow(async (ctx) => ctx.child("ship/now", child, { n: 1 }));
    const items = [{ n: 1 }, { n: 2 }];
    const itemKeys = ["a/1", "50%"];
    const keyOf = ({ n }: { n: number }) => itemKeys[n - 1] ?? "";
    const many = flow(async (ctx) => ctx.children("ship", child, items, { keyOf }));
    const older = [
      { wf: one, id: "one", key: "ship/now", childKeys: ["ship/now"], value: "one/ship/now" },
      { wf: many, id: "many", key: "ship", childKeys: ["ship[a/1]", "ship[50%]"], value: 2 },
    ];
    for (const { wf, id, key, childKeys, value } of older) {
      await rt.start(wf, input, { id });
      const run = await taken(journal, id);
      const parent = { runId: id, signal: childSignal(key) };
      for (const [i, childKey] of childKeys.entries()) {
        const { runId, inputHash } = await child.prepare({ n: i + 1 }, `${id}/${childKey}`);
        const { name: workflow, version } = child;
        const about = { runId, inputHash, parent, owner: "older", detached: false };
        await journal.start([{ ...about, workflow, version, input: encode({ n: i + 1 }) }], run);
      }
      const argsHash = key === "ship" ? hashOf(itemKeys) : undefined;
      await journal.append(run, startedRecord({ key, kind: "child", argsHash }, value));
      const children = { count: childKeys.length, within: 1_000 };
      const wakeIn = Number.POSITIVE_INFINITY;
      await journal.park(run, { reason: "child", wakeIn, signalsSeen: 0, children });
    }
    expect(await rt.resume("one")).toMatchObject({ status: "completed", output: 1 });
    expect(await rt.resume("many")).toMatchObject({ status: "completed", output: [1, 2] });
    expect(runs).toBe(3);
  });
});
