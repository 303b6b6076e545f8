import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { StoreUnavailableError } from "../../core/lock/errors.ts";
import type { RuntimeOptions } from "../../core/steps/contract.ts";
import { createRuntime } from "../../core/steps/index.ts";
import { injectFaults } from "../../core/steps/testing.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { flow } from "../support/flow.ts";

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
      await ctx.sleep("nap", 100);
      return code;
    });
    await rt.execute(wf, input, { id: "r" });
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
      await ctx.sleep("nap", 100);
      return code;
    });
    await rt.execute(wf, input, { id: "r" });
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
});
