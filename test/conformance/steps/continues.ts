import { describe, expect, test } from "vitest";
import { z } from "zod";
import { TerminalError, workflow } from "../../../core/steps/index.ts";
import { flow, Input } from "../../support/flow.ts";
import type { StepsHarness } from "./harness.ts";

/** Tests of `ctx.continueAsNew`. */
export function describeContinues({ runtime, toEnd, newId, recordsOf }: StepsHarness): void {
  describe("continueAsNew", () => {
    test("a run goes on with another input and new keys, and its output is that of the last history", async () => {
      const keys: string[] = [];
      const wf = flow(async (ctx, { n }) => {
        await ctx.step("a", async ({ idempotencyKey }) => void keys.push(idempotencyKey));
        if (n < 4) await ctx.continueAsNew({ n: n + 1 });
        return n;
      });
      const [rt, id] = [runtime(), newId()];
      expect(await rt.execute(wf, { n: 1 }, { id })).toMatchObject({ output: 4 });
      expect(new Set(keys).size).toBe(4);
      expect(keys[0]).toBe(`${id}/a`);
      expect(await recordsOf(rt, id)).toEqual(["a ok"]);
      // The first input still names the run.
      expect(await runtime().execute(wf, { n: 1 }, { id })).toMatchObject({ output: 4 });
      expect(await rt.journal.find(id)).toMatchObject({ part: 4 });
    });

    test("signals that were not received are carried over, each once, and updates keep their answers", async () => {
      const got: unknown[] = [];
      const signals = { go: z.number(), add: z.number() };
      const name = `continues-${newId()}`;
      const wf = workflow({ name, version: 1, input: Input, signals }, async (ctx, { n }) => {
        got.push(await ctx.waitFor("go"));
        if (n === 1) await ctx.answer("add", async (payload) => payload + 1);
        if (n < 2) await ctx.continueAsNew({ n: n + 1 });
      });
      const [rt, id] = [runtime(), newId()];
      await rt.start(wf, { n: 1 }, { id });
      for (const n of [7, 8]) await rt.signal(id, "go", n, { dedupeId: `${n}` });
      await rt.signal(id, "go", 7, { dedupeId: "7" });
      const ask = (wait: number) => rt.update(id, "add", 1, { dedupeId: "u", wait });
      expect(await ask(0)).toMatchObject({ status: "pending" });
      expect(await toEnd(runtime(), wf, id)).toMatchObject({ status: "completed" });
      expect(got).toEqual([7, 8]);
      // The answer is in the history before the last one.
      expect(await ask(0)).toMatchObject({ status: "answered", output: 2 });
    });

    test("a parent gets the output of its child's last history", async () => {
      const child = flow(async (ctx, { n }) => {
        if (n < 3) await ctx.continueAsNew({ n: n + 1 });
        return n;
      });
      const wf = flow(async (ctx) => ctx.child("c", child, { n: 1 }));
      expect(await toEnd(runtime(), wf, newId())).toMatchObject({ output: 3 });
    });

    test("a run looks again for the second end of a child of its own id, whose first one an earlier history got", async () => {
      let fails = true;
      const child = flow(async () => {
        if (fails) throw new TerminalError("NO", "no");
        return "done";
      });
      const [rt, id, childId] = [runtime(), newId(), newId()];
      const wf = flow(async (ctx, { n }) => {
        try {
          return await ctx.child("c", child, { n: 1 }, { id: childId });
        } catch {
          await ctx.waitFor("again", z.number());
          return ctx.continueAsNew({ n: n + 1 });
        }
      });
      const resume = () => rt.execute(wf, { n: 1 }, { id });
      expect(await resume()).toMatchObject({ reason: "signal" });
      fails = false;
      await rt.retry(childId);
      await rt.signal(id, "again", 1, { dedupeId: "1" });
      const parked = await resume();
      expect(parked).toMatchObject({ status: "suspended", reason: "child" });
      expect(parked).toHaveProperty(
        "wakeIn",
        expect.toSatisfy((span) => span <= 60_000),
      );
      await rt.resume(childId);
      // In place of the minute.
      await rt.signal(id, "nudge", 1, { dedupeId: "1" });
      expect(await toEnd(rt, wf, id)).toMatchObject({ output: "done" });
    });

    test("undos and open children refuse it, unless the undos are dropped", async () => {
      const undone: string[] = [];
      const never = flow(async (ctx) => ctx.waitFor("never", z.null()));
      const wf = flow(async (ctx, { n }) => {
        if (n === 9) return "done";
        const undo = async () => void undone.push("a");
        await ctx.step("a", async () => 1, n === 3 ? undefined : undo);
        if (n === 3) {
          await Promise.race([ctx.child("c", never, { n: 1 }), ctx.sleep("a while", 1)]);
        }
        return ctx.continueAsNew({ n: 9 }, { dropUndos: n === 2 });
      });
      const rt = runtime();
      const refused = await rt.execute(wf, { n: 1 });
      expect(refused).toMatchObject({ status: "failed", compensated: "yes" });
      expect(refused.status === "failed" && refused.error.message).toMatch(/undos of "a"/);
      expect(undone).toEqual(["a"]);
      expect(await rt.execute(wf, { n: 2 })).toMatchObject({ output: "done" });
      expect(undone).toEqual(["a"]);
    });

    test("an input that does not match the schema is refused", async () => {
      const wf = flow(async (ctx) => ctx.continueAsNew({ n: "no number" }));
      const failed = await runtime().execute(wf, { n: 1 });
      expect(failed).toMatchObject({ status: "failed", error: { code: "INVALID" } });
    });
  });
}
