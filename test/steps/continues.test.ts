import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { createRuntime, TerminalError } from "../../core/steps/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { flow, signalled } from "../support/flow.ts";
import { within } from "../support/until.ts";

function runtime() {
  return createRuntime({ journal: memoryJournal(), inlineWait: 5 });
}

describe.concurrent("continueAsNew", () => {
  test("does not hide the failure of a step beside it", async () => {
    const wf = flow(async (ctx, { n }) => {
      if (n === 2) return "second";
      const fail = async () => {
        await sleep(50);
        throw new TerminalError("BOOM");
      };
      return Promise.all([ctx.continueAsNew({ n: 2 }), ctx.step("bad", { retry: false }, fail)]);
    });
    const failed = { status: "failed", error: { code: "BOOM" } };
    expect(await runtime().run(wf, { n: 1 })).toMatchObject(failed);
  });

  test("does not hide the error of the body beside it", async () => {
    const wf = flow(async (ctx, { n }) => {
      if (n === 2) return "second";
      const fail = async () => {
        await sleep(5);
        throw new TerminalError("BODY");
      };
      return Promise.all([ctx.continueAsNew({ n: 2 }), fail()]);
    });
    const failed = { status: "failed", error: { code: "BODY" } };
    expect(await runtime().run(wf, { n: 1 })).toMatchObject(failed);
  });

  test("waits for a step between its attempts", async () => {
    const attempts: number[] = [];
    const retry = { attempts: 3, base: 50, jitter: "none" } as const;
    const wf = flow(async (ctx, { n }) => {
      if (n === 2) return "second";
      const again = ctx.step("again", { retry }, async ({ attempt }) => {
        attempts.push(attempt);
        if (attempt < 2) throw new Error("again");
      });
      return Promise.all([ctx.continueAsNew({ n: 2 }), again]);
    });
    const outcome = await within(20_000, runtime().run(wf, { n: 1 }));
    expect(outcome).toMatchObject({ output: "second" });
    expect(attempts).toEqual([1, 2]);
  });

  test("leaves an update whose handler has not ended to the next history", async () => {
    const answered: string[] = [];
    const wf = signalled({ add: z.number() }, async (ctx) => {
      const isFirst =
        (await ctx.step("part", async ({ idempotencyKey }) => idempotencyKey)) === "r/part";
      const answer = ctx.answer("add", async (n) => {
        if (isFirst) await sleep(300);
        answered.push(isFirst ? "first" : "second");
        return n + 1;
      });
      await Promise.all([answer, ...(isFirst ? [ctx.continueAsNew({ n: 2 })] : [])]);
    });
    const rt = runtime();
    await rt.start(wf, { n: 1 }, { id: "r" });
    const ask = (wait: number) => rt.update("r", "add", 1, { dedupeId: "u", wait });
    expect(await ask(0)).toMatchObject({ status: "pending" });
    expect(await rt.execute(wf, { n: 1 }, { id: "r" })).toMatchObject({ status: "completed" });
    expect(await ask(0)).toMatchObject({ status: "answered", output: 2 });
  });
});
