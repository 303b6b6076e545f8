import { describe, expect, test } from "vitest";
import { z } from "zod";
import {
  type AnyWorkflow,
  createRuntime,
  type Runtime,
  TerminalError,
  type WorkflowContext,
} from "../../../core/steps/index.ts";
import { injectFaults } from "../../../core/steps/testing.ts";
import { flow } from "../../support/flow.ts";
import { until } from "../../support/until.ts";
import type { StepsHarness } from "./harness.ts";

/** Ends of runs with open children. */
export function describeFamilyCancels({ newId, runtime, toEnd }: StepsHarness): void {
  const items = [{ n: 0 }, { n: 1 }, { n: 2 }];
  const keyOf = ({ n }: { n: number }) => String(n);

  /** A child that does one step, and waits for ever. */
  const waiting = (log: string[], name = "child") =>
    flow(async (ctx, { n }) => {
      await ctx.step(
        "work",
        async () => n,
        async () => void log.push(`undo ${name} ${n}`),
      );
      await ctx.waitFor("go", z.boolean());
      return n;
    });

  const parentStep = (ctx: WorkflowContext, log: string[]) =>
    ctx.step(
      "own",
      async () => 0,
      async () => void log.push("undo parent"),
    );

  /** Executes a run, and its descendants until they wait: a claim passes over a child whose row another claim has locked. */
  const untilParked = async (rt: Runtime, wf: AnyWorkflow, id: string, descendants: string[]) => {
    const outcome = await rt.execute(wf as never, { n: 1 } as never, { id });
    expect(outcome).toMatchObject({ status: "suspended" });
    for (const runId of descendants.map((one) => `${id}/${one}`)) {
      await until(async () => {
        await rt.resume(runId).catch(() => {});
        return (await rt.journal.find(runId))?.status === "parked";
      });
    }
  };
  const all = ["all[0]", "all[1]", "all[2]"];

  describe("children of a run that ends", () => {
    test("are cancelled with it, and undone before its own steps; so are their children", async () => {
      const rt = runtime();
      const log: string[] = [];
      const grandchild = waiting(log, "grandchild");
      const child = flow(async (ctx, input) => {
        await ctx.step(
          "work",
          async () => {},
          async () => void log.push("undo child"),
        );
        return ctx.child("grandchild", grandchild, input);
      });
      const wf = flow(async (ctx, input) => {
        await parentStep(ctx, log);
        return ctx.child("child", child, input);
      });
      const id = newId();
      await untilParked(rt, wf, id, ["child", "child/grandchild"]);
      expect(await rt.cancel(id)).toBe("requested");
      expect(await toEnd(rt, wf, id)).toMatchObject({
        status: "failed",
        error: { code: "RUN_CANCELLED" },
        compensated: "yes",
      });
      expect(log).toEqual(["undo grandchild 1", "undo child", "undo parent"]);
      for (const one of [id, `${id}/child`, `${id}/child/grandchild`]) {
        expect((await rt.journal.find(one))?.status).toBe("cancelled");
      }
    });

    test("are cancelled when it fails, though it has nothing to undo", async () => {
      const rt = runtime();
      const log: string[] = [];
      const child = waiting(log);
      const wf = flow(async (ctx) => {
        const fail = async () => {
          await ctx.waitFor("fail", z.boolean());
          throw new TerminalError("LATE");
        };
        await Promise.all([ctx.children("all", child, items, { keyOf }), fail()]);
      });
      const id = newId();
      await untilParked(rt, wf, id, all);
      await rt.signal(id, "fail", true, { dedupeId: "1" });
      expect(await toEnd(rt, wf, id)).toMatchObject({
        status: "failed",
        error: { code: "LATE" },
        compensated: "yes",
      });
      expect(log.sort()).toEqual(["undo child 0", "undo child 1", "undo child 2"]);
      expect((await rt.journal.find(`${id}/all[2]`))?.status).toBe("cancelled");
    });

    test("go on when they are detached", async () => {
      const rt = runtime();
      const log: string[] = [];
      const child = waiting(log);
      const wf = flow(async (ctx, input) => {
        const one = ctx.child("one", child, input, { detached: true });
        await Promise.all([one, ctx.children("all", child, items, { keyOf, detached: true })]);
      });
      const id = newId();
      await untilParked(rt, wf, id, ["one", ...all]);
      await rt.cancel(id);
      expect(await toEnd(rt, wf, id)).toMatchObject({ compensated: "yes" });
      await rt.signal(`${id}/one`, "go", true, { dedupeId: "1" });
      expect(await rt.resume(`${id}/one`)).toMatchObject({ status: "completed", output: 1 });
      expect(await rt.journal.find(`${id}/all[0]`)).toMatchObject({ cancelled: false });
      expect(log).toEqual([]);
    });

    test("whose undo fails make the run's own undo incomplete", async () => {
      const rt = runtime();
      const child = flow(async (ctx) => {
        await ctx.step(
          "work",
          async () => {},
          async () => {
            throw new TerminalError("BROKEN");
          },
        );
        await ctx.waitFor("go", z.boolean());
      });
      const wf = flow(async (ctx, input) => ctx.child("child", child, input));
      const id = newId();
      await untilParked(rt, wf, id, ["child"]);
      await rt.cancel(id);
      expect(await toEnd(rt, wf, id)).toMatchObject({ status: "failed", compensated: "no" });
    });

    test("are started anew by a retry of the run, unless they had completed", async () => {
      const rt = runtime();
      const log: string[] = [];
      let isOpen = false;
      const child = flow(async (ctx, { n }) => {
        await ctx.step("work", async ({ runId }) => void log.push(runId.replace(/^.*\//, "")));
        if (n > 0 && !isOpen) await ctx.waitFor("go", z.boolean());
        return n;
      });
      const wf = flow(async (ctx, input) => {
        const one = ctx.child("one", child, input);
        return Promise.all([one, ctx.children("all", child, items, { keyOf })]);
      });
      const id = newId();
      await untilParked(rt, wf, id, ["one", "all[1]", "all[2]"]);
      await rt.cancel(id);
      expect(await toEnd(rt, wf, id)).toMatchObject({ status: "failed" });
      isOpen = true;
      expect(await rt.retry(id)).toBe("reopened");
      expect(await toEnd(rt, wf, id)).toMatchObject({ output: [1, [0, 1, 2]] });
      const begun = (prefix: string) => log.filter((one) => one.startsWith(prefix)).length;
      expect([begun("one"), begun("all[0]"), begun("all[1]"), begun("all[2]")]).toEqual([
        2, 1, 2, 2,
      ]);
    });

    test("are cancelled once when the process that undoes the run is stopped anywhere", async () => {
      const rt = runtime();
      const stopAt = async (stop: number, when: "before" | "after") => {
        const log: string[] = [];
        const child = waiting(log);
        const wf = flow(async (ctx, input) => {
          await parentStep(ctx, log);
          return ctx.child("child", child, input);
        });
        const id = newId();
        await untilParked(rt, wf, id, ["child"]);
        await rt.cancel(id);
        let calls = 0;
        const cut = injectFaults(rt.journal, (point) => {
          const isCounted = !point.startsWith("renew") && point.endsWith(when);
          if (isCounted && ++calls >= stop) throw new Error("cut off");
        });
        const stopped = createRuntime({ journal: cut, lease: 1_000 });
        await stopped.execute(wf, { n: 1 }, { id }).catch(() => {});
        const again = createRuntime({ journal: rt.journal, workflows: [wf, child] });
        expect(await toEnd(again, wf, id)).toMatchObject({ status: "failed" });
        expect([...new Set(log)]).toEqual(["undo child 1", "undo parent"]);
        expect((await rt.journal.find(`${id}/child`))?.status).toBe("cancelled");
      };
      const stops = Array.from({ length: 10 }, (_, i) => i + 1);
      await Promise.all(stops.flatMap((stop) => [stopAt(stop, "before"), stopAt(stop, "after")]));
    }, 240_000);
  });
}
