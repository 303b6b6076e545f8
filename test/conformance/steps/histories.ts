import { describe, expect, test } from "vitest";
import { z } from "zod";
import { checkReplay, exportRun } from "../../../core/steps/replay-check.ts";
import { flow } from "../../support/flow.ts";
import type { StepsHarness } from "./harness.ts";

/** Tests of runs with many records and with large results. */
export function describeLongHistories({ runtime, toEnd, newId }: StepsHarness): void {
  describe("long histories", () => {
    test("large results are read when they are replayed, and concurrent branches get them in their order", async () => {
      const orders: string[][] = [];
      const wf = flow(async (ctx) => {
        const order: string[] = [];
        orders.push(order);
        const branch = async (name: string, length: number) => {
          for (let i = 0; i < 3; i += 1) {
            const result = await ctx.step(name, async () => name.repeat(length));
            order.push(`${name} ${i} ${result.length}`);
          }
        };
        await Promise.all([branch("a", 1_500_000), branch("b", 2), branch("c", 20_000)]);
        await ctx.waitFor("go", z.boolean());
        return order;
      });
      const id = newId();
      await runtime().execute(wf, { n: 1 }, { id });
      await runtime().signal(id, "go", true, { dedupeId: "1" });
      const ended = await toEnd(runtime(), wf, id);
      expect(ended).toMatchObject({ status: "completed", output: orders[0] });
      expect(orders[1]).toEqual(orders[0]);
    });

    test("an undo, a retry and a fork get a large result, and so does an exported history", async () => {
      let attempts = 0;
      const undone: number[] = [];
      const wf = flow(async (ctx) => {
        const kept = await ctx.step("kept", async () => "k".repeat(20_000));
        await ctx.step(
          "large",
          async () => "x".repeat(30_000),
          async (result) => void undone.push(result?.length ?? 0),
        );
        await ctx.step("fails", { retry: false, effect: "none" }, async () => {
          attempts += 1;
          if (attempts === 1) throw new Error("not yet");
        });
        return kept.length;
      });
      const [ours, id] = [runtime(), newId()];
      expect(await toEnd(ours, wf, id)).toMatchObject({ status: "failed" });
      expect(undone).toEqual([30_000]);
      await ours.retry(id);
      const ended = await toEnd(runtime(), wf, id);
      expect(ended).toMatchObject({ status: "completed", output: 20_000 });
      const fork = await ours.fork(id, { from: "fails" });
      expect(await toEnd(runtime(), wf, fork)).toMatchObject({ output: 20_000 });
      expect(attempts).toBe(3);
      const report = await checkReplay(wf, await exportRun(ours.journal, id));
      expect(report.divergence).toBeUndefined();
    });

    test("a published value and the answer to an update may be large", async () => {
      const rt = runtime();
      const wf = flow(async (ctx) => {
        await ctx.publish("large", "x".repeat(50_000));
      });
      const id = newId();
      await toEnd(rt, wf, id);
      expect(await rt.query(id, "large")).toHaveLength(50_000);
    });
  });
}
