import { describe, expect, test } from "vitest";
import { z } from "zod";
import type { Journal } from "../../../core/journal/journal.ts";
import { createRuntime, type WorkflowContext, workflow } from "../../../core/steps/index.ts";
import { checkReplay, createTestRuntime, exportRun } from "../../../core/steps/testing.ts";
import type { StepsHarness } from "./harness.ts";

const Input = z.object({ n: z.number() });

/** Makes a version of the code of the workflow "order". */
function order(body: (ctx: WorkflowContext) => Promise<unknown>) {
  return workflow({ name: "order", version: 1, input: Input }, body);
}

const Approval = z.object({ by: z.string() });
const never = async () => {
  throw new Error("a step of the real world was called");
};

/** Fakes, and the check of histories. */
export function describeTesting({ newId, runtime, toEnd }: StepsHarness): void {
  const world = order(async (ctx) => {
    const paid = await ctx.step("charge", never, never);
    await ctx.sleep("a month", "30d");
    const first = await ctx.waitFor("approval", Approval, { timeout: "7d" });
    const second = await ctx.waitFor("approval", Approval, { timeout: "7d" });
    const missing = await ctx.waitFor("parcel", Approval, { timeout: "7d" });
    const items = await ctx.step.map("ship", ["a", "b"], { keyOf: String }, never);
    return { paid, first, second, missing, items };
  });

  let own: Journal | undefined;
  // One for all tests: each runtime of the harness has connections of its own.
  const shared = () => {
    own ??= runtime().journal;
    return own;
  };

  describe("a test runtime", () => {
    test("fakes steps and signals by name, and lets no time pass", async () => {
      const journal = shared();
      const shipped: unknown[] = [];
      const test = createTestRuntime({
        journal,
        fake: {
          steps: {
            charge: ({ idempotencyKey }: { readonly idempotencyKey: string }) => idempotencyKey,
            ship: (item: string) => shipped.push(item),
          },
          signals: { approval: [{ by: "ada" }, { by: "bob" }] },
        },
      });
      const id = newId();
      expect(await test.run(world, { n: 1 }, { id })).toMatchObject({
        status: "completed",
        output: {
          paid: `${id}/charge`,
          ...{ first: { by: "ada" }, second: { by: "bob" }, missing: { timedOut: true } },
          items: [1, 2],
        },
      });
      expect(shipped).toEqual(["a", "b"]);
      expect(await test.execute(world, { n: 1 }, { id })).toMatchObject({ status: "completed" });
    });

    test("fakes the steps of children, and calls no real undo of a faked step", async () => {
      const journal = shared();
      const child = workflow({ name: "child", version: 1, input: z.null() }, (ctx) =>
        ctx.step("charge", never),
      );
      const parent = order(async (ctx) => {
        await ctx.step("reserve", never, never);
        await ctx.child("pay", child, null);
        throw new Error("undo all");
      });
      const steps = { charge: () => "faked", reserve: () => "faked" };
      const test = createTestRuntime({ journal, workflows: [child], fake: { steps } });
      const outcome = await test.run(parent, { n: 1 });
      expect(outcome).toMatchObject({ status: "failed", error: { message: "undo all" } });
    });
  });

  describe("a history", () => {
    const pay = async (ctx: WorkflowContext) => ctx.step("pay", async () => "paid");

    /** Runs the code to its end or its first wait, and exports its history. */
    async function historyOf(code: ReturnType<typeof order>): Promise<string> {
      const rt = createRuntime({ journal: shared() });
      const id = newId();
      await rt.execute(code, { n: 1 }, { id });
      return exportRun(rt.journal, id);
    }

    const code = order(async (ctx) => {
      await pay(ctx);
      const [at] = [await ctx.now()];
      await ctx.step.map(
        "ship",
        ["a", "b"],
        { keyOf: String, concurrency: 1 },
        async (item) => item,
      );
      return at.getTime();
    });

    test("passes with the code that made it, and with a further step at its end", async () => {
      const history = await historyOf(code);
      const report = await checkReplay(code, history);
      expect(report.divergence).toBeUndefined();
      expect(report.commands).toEqual([
        { key: "pay", kind: "step", state: "same" },
        { key: "~now", kind: "value", state: "same" },
        { key: "ship[a]", kind: "step", state: "same" },
        { key: "ship[b]", kind: "step", state: "same" },
      ]);
      const longer = order(async (ctx) => {
        await code.run(ctx, { n: 1 });
        await ctx.step("thank", { retry: false }, never, never);
        await ctx.step("later", never);
      });
      const more = await checkReplay(longer, history);
      expect(more.divergence).toBeUndefined();
      expect(more.commands.at(-1)).toEqual({ key: "thank", kind: "step", state: "new" });
      const plain = order(async (ctx) => {
        await code.run(ctx, { n: 1 });
        await ctx.step.map("thank", ["a"], { keyOf: String }, never);
      });
      const { commands } = await checkReplay(plain, history);
      expect(commands.at(-1)).toEqual({ key: "thank[a]", kind: "step", state: "new" });
    });

    test("tells the first command that diverges, and those that are not reached", async () => {
      const history = await historyOf(code);
      const other = order(async (ctx) => {
        await pay(ctx);
        await ctx.step("check fraud", never);
        await ctx.now();
      });
      const report = await checkReplay(other, history);
      expect(report.divergence).toContain('"~now" was expected, and check fraud came');
      expect(report.commands.map(({ state }) => state)).toEqual([
        ...["same", "missing", "missing", "missing"],
      ]);
      const changed = order(async (ctx) => void (await ctx.sleep("pay", 1)));
      const { divergence } = await checkReplay(changed, history);
      expect(divergence).toContain('"pay" was a step, and is a sleep now');
      const forgetful = order(async (ctx) => {
        await code.run(ctx, { n: 1 });
        void ctx.sleep("forgotten", 1);
      });
      const misuse = await checkReplay(forgetful, history);
      expect(misuse.divergence).toContain('ctx.sleep "forgotten" was not awaited');
    });

    test("tells that the run would end in another way", async () => {
      const history = await historyOf(code);
      const failing = order(async (ctx) => {
        await code.run(ctx, { n: 1 });
        throw new Error("new check");
      });
      const { divergence } = await checkReplay(failing, history);
      expect(divergence).toBe("the run ended as completed, and would end as failed: new check");
    });

    test("of a run that waits passes, and no step of the real world is called", async () => {
      const waiting = order(async (ctx) => {
        await pay(ctx);
        await ctx.publish("progress", 1);
        await ctx.sleep("long", "1d");
        await ctx.step("ship", never);
      });
      const report = await checkReplay(waiting, await historyOf(waiting));
      expect(report.divergence).toBeUndefined();
      expect(report.commands.map(({ state }) => state)).toEqual(["same", "same", "same"]);
    });

    test("of a run that was undone passes with the undos that it has", async () => {
      const undone = order(async (ctx) => {
        await ctx.step(
          "reserve",
          async () => 1,
          async () => {},
        );
        throw new Error("sold out");
      });
      const report = await checkReplay(undone, await historyOf(undone));
      expect(report).toEqual({
        divergence: undefined,
        commands: [{ key: "reserve", kind: "step", state: "same" }],
      });
    });

    test("of a run that was retried lists the commands of the last attempt alone", async () => {
      const rt = runtime();
      let isDown = true;
      const retried = order(async (ctx) => {
        await pay(ctx);
        await ctx.step("ship", { retry: false }, async () => {
          if (isDown) throw new Error("away");
        });
      });
      const id = newId();
      await rt.execute(retried, { n: 1 }, { id });
      isDown = false;
      await rt.retry(id);
      await toEnd(rt, retried, id);
      const other = order(async (ctx) => {
        await pay(ctx);
        await ctx.step("check fraud", never);
      });
      const history = await exportRun(rt.journal, id);
      expect((await checkReplay(retried, history)).divergence).toBeUndefined();
      expect((await checkReplay(other, history)).commands).toEqual([
        { key: "pay", kind: "step", state: "same" },
        { key: "ship", kind: "step", state: "missing" },
      ]);
    });

    test("of another workflow or version is refused", async () => {
      const history = await historyOf(code);
      const next = workflow({ name: "order", version: 2, input: Input }, async () => {});
      await expect(checkReplay(next, history)).rejects.toThrow(
        "the history is one of order version 1, and the workflow is order version 2",
      );
      await expect(exportRun(shared(), newId())).rejects.toMatchObject({
        code: "UNKNOWN_RUN",
      });
    });
  });
}
