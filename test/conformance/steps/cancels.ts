import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { StepScope } from "../../../core/steps/index.ts";
import { flow } from "../../support/flow.ts";
import { until, within } from "../../support/until.ts";
import type { StepsHarness } from "./harness.ts";

/** Cancellations of runs that are being executed. */
export function describeCancels({ newId, runtime }: StepsHarness): void {
  describe("cancellations", () => {
    test("a cancellation in the same process aborts the running step at once, and undoes the run", async () => {
      const rt = runtime({ lease: "10m" });
      const log: string[] = [];
      const begun = Promise.withResolvers<void>();
      const wf = flow(async (ctx) => {
        await ctx.step(
          "reserve",
          async () => {},
          async () => log.push("undo reserve"),
        );
        await ctx.step("charge", (scope) => hang(scope, begun.resolve, log));
      });
      const id = newId();
      const executing = rt.execute(wf, { n: 1 }, { id });
      await begun.promise;
      expect(await rt.cancel(id)).toBe("requested");
      const outcome = await within(60_000, executing);
      expect(outcome).toMatchObject({ status: "failed", error: { code: "RUN_CANCELLED" } });
      expect(log).toEqual(["aborted: RUN_CANCELLED", "undo reserve"]);
      expect((await rt.journal.find(id))?.status).toBe("cancelled");
    });

    test("a cancellation by another process aborts the running step with the next renewal", async () => {
      const [ours, theirs] = [runtime({ lease: "6s" }), runtime()];
      const log: string[] = [];
      const begun = Promise.withResolvers<void>();
      const wf = flow(async (ctx) =>
        ctx.step("charge", (scope) => hang(scope, begun.resolve, log)),
      );
      const id = newId();
      const executing = ours.run(wf, { n: 1 }, { id });
      await begun.promise;
      expect(await theirs.cancel(id)).toBe("requested");
      await within(60_000, executing);
      expect(log).toContain("aborted: RUN_CANCELLED");
      expect((await ours.journal.find(id))?.status).toBe("cancelled");
    });

    test("a body that catches the cancellation and calls again for ever is left, and the run is undone", async () => {
      const rt = runtime();
      const log: string[] = [];
      let calls = 0;
      const wf = flow(async (ctx) => {
        await ctx.step(
          "reserve",
          async () => {},
          async () => log.push("undo reserve"),
        );
        for (;;) {
          calls += 1;
          await ctx.sleep("pause", "1h").catch(() => {});
        }
      });
      const id = newId();
      expect(await rt.execute(wf, { n: 1 }, { id })).toMatchObject({ status: "suspended" });
      await rt.cancel(id);
      const outcome = await within(60_000, rt.resume(id));
      expect(outcome).toMatchObject({ error: { code: "RUN_CANCELLED" }, compensated: "yes" });
      expect(log).toEqual(["undo reserve"]);
      const before = calls;
      await sleep(50);
      expect(calls).toBe(before);
    });

    test("a cancellation during the last step wins over the completion, and the step is undone", async () => {
      const [ours, theirs] = [runtime({ lease: "10m" }), runtime()];
      const log: string[] = [];
      const wf = flow(async (ctx, { n }) =>
        ctx.step(
          "last",
          async ({ runId }) => {
            log.push(await theirs.cancel(runId));
            return n;
          },
          async (result) => log.push(`undo ${result}`),
        ),
      );
      const id = newId();
      const outcome = await ours.execute(wf, { n: 1 }, { id });
      expect(outcome).toMatchObject({ status: "failed", error: { code: "RUN_CANCELLED" } });
      expect(log).toEqual(["requested", "undo 1"]);
      expect((await ours.journal.find(id))?.status).toBe("cancelled");
      expect(await theirs.cancel(id)).toBe("ended");
    });

    test("a body that catches the errors of a cancellation does not complete", async () => {
      const rt = runtime();
      const wf = flow(async (ctx) => {
        await ctx.step("a", async ({ runId }) => rt.cancel(runId)).catch(() => {});
        await ctx.step("b", async () => {}).catch(() => {});
        return "done";
      });
      const id = newId();
      const outcome = await rt.execute(wf, { n: 1 }, { id });
      expect(outcome).toMatchObject({ status: "failed", error: { code: "RUN_CANCELLED" } });
      expect((await rt.journal.find(id))?.status).toBe("cancelled");
    });

    test("a cancellation does not abort the undos of a failed run", async () => {
      const rt = runtime();
      const log: string[] = [];
      const wf = flow(async (ctx) => {
        await ctx.step(
          "a",
          async () => {},
          async (_, { runId, signal }) => {
            await rt.cancel(runId);
            await sleep(20);
            log.push(`undo a, ${signal.aborted}`);
          },
        );
        throw new Error("no stock");
      });
      const id = newId();
      const outcome = await rt.execute(wf, { n: 1 }, { id });
      expect(outcome).toMatchObject({ status: "failed", error: { message: "no stock" } });
      expect(log).toEqual(["undo a, false"]);
      expect((await rt.journal.find(id))?.status).toBe("failed");
    });
  });
}

/** Waits until the step is aborted, and logs why. */
async function hang({ signal }: StepScope, onBegin: () => void, log: string[]): Promise<never> {
  signal.addEventListener("abort", () => log.push(`aborted: ${signal.reason.code}`));
  onBegin();
  await until(() => signal.aborted);
  throw signal.reason;
}
