import { describe, expect, test } from "vitest";
import { z } from "zod";
import { type StepScope, TerminalError } from "../../../core/steps/index.ts";
import type { StepOptions } from "../../../core/steps/step-options.ts";
import { flow } from "../../support/flow.ts";
import { until } from "../../support/until.ts";
import type { StepsHarness } from "./harness.ts";

/** Undos of failed, cancelled and timed-out runs. */
export function describeUndos({ newId, openLocks, recordsOf, runtime, toEnd }: StepsHarness): void {
  describe("undos", () => {
    const saga = (log: string[], brake: () => void = () => {}) =>
      flow(async (ctx) => {
        for (const name of ["a", "b", "c"]) {
          await ctx.step(
            name,
            { retry: { jitter: "none" } },
            async () => `${name}!`,
            async (result, { idempotencyKey }) => {
              if (name === "b") brake();
              log.push(`undo ${result} ${idempotencyKey.split("/").at(-1)}`);
            },
          );
        }
        await ctx.step("d", { retry: false }, async () => {
          throw new TerminalError("NO", "no", { effect: "none" });
        });
      });

    test("a failed run calls the undos of its steps once each, the latest step first", async () => {
      const rt = runtime();
      const log: string[] = [];
      const id = newId();
      const outcome = await toEnd(rt, saga(log), id);
      expect(outcome).toMatchObject({ status: "failed", compensated: "yes" });
      expect(outcome).toMatchObject({ error: { code: "NO" } });
      expect(log).toEqual(["undo c! c", "undo b! b", "undo a! a"]);
      await toEnd(rt, saga(log), newId());
    });

    test("an interrupted undo resumes where it was", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const log: string[] = [];
      let times = 0;
      const wf = saga(log, () => {
        times += 1;
        if (times === 1) throw new Error("down for a moment");
      });
      const id = newId();
      const first = await ours.execute(wf, { n: 1 }, { id });
      expect(first).toMatchObject({ status: "suspended", reason: "retry-delay" });
      expect(log).toEqual(["undo c! c"]);
      expect(await toEnd(theirs, wf, id)).toMatchObject({ compensated: "yes" });
      expect(log).toEqual(["undo c! c", "undo b! b", "undo a! a"]);
    });

    test("an undo that fails for good is reported, and the other undos are called", async () => {
      const rt = runtime();
      const log: string[] = [];
      const wf = saga(log, () => {
        throw new TerminalError("STUCK");
      });
      const outcome = await toEnd(rt, wf, newId());
      expect(outcome).toMatchObject({ status: "failed", compensated: "no" });
      expect(outcome).toMatchObject({ error: { code: "NO" } });
      expect(log).toEqual(["undo c! c", "undo a! a"]);
    });

    test("a parked run that is cancelled is undone with its next execution", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const log: string[] = [];
      const wf = flow(async (ctx) => {
        await ctx.step(
          "a",
          async () => 1,
          async () => log.push("undo a"),
        );
        await ctx.sleep("nap", "1h");
        log.push("never");
      });
      const id = newId();
      await ours.execute(wf, { n: 1 }, { id });
      expect(await theirs.cancel(id)).toBe("requested");
      const outcome = await ours.execute(wf, { n: 1 }, { id });
      expect(outcome).toMatchObject({ status: "failed", error: { code: "RUN_CANCELLED" } });
      expect(log).toEqual(["undo a"]);
      expect(await theirs.cancel(id)).toBe("ended");
      expect((await ours.journal.show(id))?.status).toBe("cancelled");
      await expect(ours.cancel(newId())).rejects.toMatchObject({ code: "UNKNOWN_RUN" });
    });

    test("a run that times out is undone", async () => {
      const rt = runtime();
      const log: string[] = [];
      const lasting = (timeout: number) =>
        flow(
          async (ctx) => {
            await ctx.step(
              "a",
              async () => 1,
              async () => log.push("undo a"),
            );
            await ctx.sleep("nap", "1h");
            await ctx.step("b", async () => log.push("b"));
          },
          { timeout },
        );
      // On a busy machine, a run may time out before its first step.
      for (let timeout = 400; log.length === 0; timeout *= 2) {
        const outcome = await toEnd(rt, lasting(timeout), newId());
        expect(outcome).toMatchObject({ status: "failed", error: { code: "RUN_TIMEOUT" } });
      }
      expect(log).toEqual(["undo a"]);
    });

    const unclear: readonly (readonly [
      string,
      StepOptions<unknown>,
      (scope: StepScope) => unknown,
    ])[] = [
      ["throws", {}, () => Promise.reject(new TerminalError("LATE"))],
      ["takes too long", { timeout: 20 }, () => new Promise(() => {})],
      ["returns a result that is too large", {}, () => "x".repeat(2 ** 24)],
      ["returns a result that its schema refuses", { output: z.number() }, () => "a text"],
    ];

    test.for(unclear)(
      "a step that %s is undone, since it may have had its effect",
      async ([, options, fn]) => {
        const rt = runtime();
        const undone: unknown[] = [];
        const wf = flow(async (ctx) => {
          await ctx.step(
            "charge",
            { ...options, retry: false },
            async (scope) => fn(scope),
            async (result, { outcome, stepIdempotencyKey }) =>
              undone.push({ result, outcome, stepIdempotencyKey }),
          );
        });
        const id = newId();
        const outcome = await toEnd(rt, wf, id);
        expect(outcome).toMatchObject({ status: "failed", compensated: "yes" });
        expect(undone).toEqual([
          { result: undefined, outcome: "unknown", stepIdempotencyKey: `${id}/charge` },
        ]);
      },
    );

    test("a step that was interrupted in its first attempt is undone after a cancellation", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const undone: unknown[] = [];
      const gone = new AbortController();
      const wf = flow(async (ctx) => {
        await ctx.step(
          "charge",
          async () => {
            gone.abort();
            await new Promise(() => {});
          },
          async (_, { outcome }) => undone.push(outcome),
        );
      });
      const id = newId();
      await ours.execute(wf, { n: 1 }, { id, signal: gone.signal });
      await theirs.cancel(id);
      const outcome = await toEnd(theirs, wf, id);
      expect(outcome).toMatchObject({ error: { code: "RUN_CANCELLED" }, compensated: "yes" });
      expect(undone).toEqual(["unknown"]);
      expect(await recordsOf(ours, id)).toContain("charge@1 started started");
    });

    test("a step whose error says that it had no effect is not undone, unless an earlier attempt is unclear", async () => {
      for (const [errors, expected] of [
        [["none"], []],
        [["none", "none"], []],
        [[undefined, "none"], ["unknown"]],
        [["none", undefined], ["unknown"]],
      ] as const) {
        const rt = runtime();
        const undone: unknown[] = [];
        const wf = flow(async (ctx) => {
          await ctx.step(
            "charge",
            { retry: { attempts: errors.length, base: 1 } },
            async ({ attempt }) => {
              const effect = errors[attempt - 1];
              throw Object.assign(new Error("declined"), { effect });
            },
            async (_, { outcome }) => undone.push(outcome),
          );
        });
        expect(await toEnd(rt, wf, newId())).toMatchObject({ compensated: "yes" });
        expect(undone).toEqual(expected);
      }
    });

    test("a run is unclear when a step without an undo failed, unless the step only reads", async () => {
      for (const [effect, compensated] of [
        [undefined, "unclear"],
        ["none", "yes"],
      ] as const) {
        const rt = runtime();
        const wf = flow(async (ctx) => {
          await ctx.step(
            "a",
            async () => 1,
            async (_, { attempt }) => {
              if (attempt === 1) throw new Error("down for a moment");
            },
          );
          const options = { retry: false, ...(effect && { effect }) } as const;
          await ctx.step("mail", options, async () => {
            throw new Error("the connection was cut");
          });
        });
        expect(await toEnd(rt, wf, newId())).toMatchObject({ status: "failed", compensated });
      }
    });

    test("a run is unclear when its process died, and a step without an undo may have begun", async () => {
      const [ours, theirs] = [runtime({ lease: 100 }), runtime()];
      const wf = flow(async (ctx) => {
        await ctx.step("mail", async () => 1);
      });
      const id = newId();
      await ours.start(wf, { n: 1 }, { id });
      await ours.journal.take({ runId: id, owner: "a process that dies", ttl: 50 });
      await theirs.cancel(id);
      const outcome = await toEnd(theirs, wf, id);
      expect(outcome).toMatchObject({ error: { code: "RUN_CANCELLED" }, compensated: "unclear" });
    });

    test("a run is unclear when its process died after a record, whoever parks it before the cancellation", async () => {
      const rt = runtime();
      const wf = flow(async (ctx) => {
        await ctx.step("pay", async () => 1);
        await ctx.step("mail", async () => 1);
      });
      for (const drain of [undefined, AbortSignal.abort()]) {
        const runId = newId();
        await rt.start(wf, { n: 1 }, { id: runId });
        const taken = await rt.journal.take({ runId, owner: "a process that dies", ttl: 500 });
        if (taken.kind !== "claimed") throw new Error(`not claimed but ${taken.kind}`);
        const paid = {
          key: "pay",
          kind: "step",
          outcome: "ok",
          attempt: 1,
          value: undefined,
        } as const;
        await rt.journal.append({ runId, epoch: taken.epoch }, paid);
        if (drain) await until(async () => (await rt.resume(runId, { drain })).status !== "busy");
        await rt.cancel(runId);
        const outcome = await toEnd(rt, wf, runId);
        expect(outcome).toMatchObject({ error: { code: "RUN_CANCELLED" }, compensated: "unclear" });
      }
    });

    test("a step that has not begun is not undone", async () => {
      const rt = runtime();
      const undone: unknown[] = [];
      const wf = flow(async (ctx) => {
        const undo = async () => undone.push("undo");
        await Promise.all([
          ctx.step("first", { effect: "none" }, async () => {
            throw new TerminalError("NO");
          }),
          ctx.step("second", { lock: { names: id, onBusy: "suspend" } }, async () => 1, undo),
        ]);
      });
      const id = newId();
      const other = openLocks();
      await using _ = await other.lock(id, { ttl: 60_000, wait: 60_000 });
      expect(await toEnd(rt, wf, id)).toMatchObject({ status: "failed", compensated: "yes" });
      expect(undone).toEqual([]);
    });
  });
}
