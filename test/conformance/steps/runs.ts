import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { type Duration, deadlineIn } from "../../../core/lock/duration.ts";
import { type Runtime, TerminalError, workflow } from "../../../core/steps/index.ts";
import { flow, Input } from "../../support/flow.ts";
import { until } from "../../support/until.ts";
import type { StepsHarness } from "./harness.ts";

/** The start, the end and the children of runs. */
export function describeRuns({ newId, runtime, toEnd }: StepsHarness): void {
  describe("runs", () => {
    test("a run returns its output, and the same output when it is executed again", async () => {
      const rt = runtime();
      let times = 0;
      const wf = flow(async (ctx, { n }) => ctx.step("a", async () => n + ++times));
      const id = newId();
      const first = await rt.execute(wf, { n: 1 }, { id });
      expect(first).toEqual({ runId: id, status: "completed", output: 2 });
      expect(await rt.execute(wf, { n: 1 }, { id })).toEqual(first);
      expect(times).toBe(1);
    });

    test("a run has the id of its input, and is refused for another input", async () => {
      const rt = runtime();
      const prefix = newId();
      const wf = flow(async () => "done", { id: () => prefix });
      expect(await rt.execute(wf, { n: 1 })).toMatchObject({ runId: prefix, output: "done" });
      await expect(rt.execute(wf, { n: 2 })).rejects.toMatchObject({ code: "INPUT_CONFLICT" });
      const kind = flow(async () => "other", { id: () => prefix });
      await expect(rt.execute(kind, { n: 1 })).rejects.toMatchObject({ code: "INPUT_CONFLICT" });
    });

    test("a workflow may return the existing run on a conflict, or compare a part of the input alone", async () => {
      const rt = runtime();
      const [a, b] = [newId(), newId()];
      const existing = flow(async (_, { n }) => n, {
        id: () => a,
        onConflict: "return-existing",
      });
      await rt.execute(existing, { n: 1 });
      expect(await rt.execute(existing, { n: 2 })).toMatchObject({ output: 1 });
      expect(await rt.start(existing, { n: 3 })).toMatchObject({ output: 1 });
      const partly = flow(async (_, { n }) => n, { id: () => b, fingerprint: () => "same" });
      await rt.execute(partly, { n: 1 });
      expect(await rt.execute(partly, { n: 2 })).toMatchObject({ output: 1 });
    });

    test("a run with invalid input is refused before any write", async () => {
      const rt = runtime();
      const wf = flow(async () => 1);
      const bad = { n: "one" } as never;
      const id = newId();
      await expect(rt.execute(wf, bad, { id })).rejects.toMatchObject({ code: "INVALID" });
      await expect(rt.execute(wf, { n: 1 }, { id: "" })).rejects.toThrow("run id");
      await expect(rt.execute(wf, { n: 1 }, { id: "x".repeat(256) })).rejects.toThrow("255");
      expect(await rt.journal.show(id)).toBeUndefined();
    });

    test("a run is busy while another process executes it, and none of its steps is executed twice", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const { promise, resolve } = Promise.withResolvers<void>();
      let times = 0;
      const wf = flow(async (ctx) =>
        ctx.step("slow", async () => {
          times += 1;
          await promise;
        }),
      );
      const id = newId();
      const executing = ours.execute(wf, { n: 1 }, { id });
      await until(() => times === 1);
      const others = await Promise.all(
        [1, 2, 3, 4].map(() => theirs.execute(wf, { n: 1 }, { id })),
      );
      for (const outcome of others) expect(outcome.status).toBe("busy");
      resolve();
      expect(await executing).toMatchObject({ status: "completed" });
      expect(times).toBe(1);
    });

    test("a run is claimed once by twenty concurrent executions", async () => {
      const clients = [runtime(), runtime()];
      let times = 0;
      const wf = flow(async (ctx) => ctx.step("once", async () => ++times));
      const id = newId();
      const all = Array.from({ length: 20 }, (_, i) =>
        (clients[i % 2] as Runtime).execute(wf, { n: 1 }, { id }),
      );
      const outcomes = await Promise.all(all);
      expect(outcomes.some(({ status }) => status === "completed")).toBe(true);
      expect(times).toBe(1);
    });

    test("a run is not started after the deadline", async () => {
      const rt = runtime();
      const id = newId();
      const wf = flow(async () => 1);
      const outcome = await rt.execute(wf, { n: 1 }, { id, deadline: deadlineIn(0) });
      expect(outcome.status).toBe("busy");
      expect(await rt.journal.show(id)).toBeUndefined();
    });

    test("a deadline or a signal that is none is refused by its name, before the run is started", async () => {
      const rt = runtime();
      const id = newId();
      const wf = flow(async () => 1);
      const wrong = { deadline: 5_000, signal: new AbortController() };
      for (const [name, value] of Object.entries(wrong)) {
        const executing = rt.execute(wf, { n: 1 }, { id, [name]: value as never });
        await expect(executing).rejects.toThrow(new RegExp(`^${name} must be`));
      }
      expect(await rt.journal.show(id)).toBeUndefined();
    });

    test("start leaves a run for any process that resumes it", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const wf = flow(async (ctx) => ctx.step("a", async () => "b"));
      const id = newId();
      expect(await ours.start(wf, { n: 1 }, { id })).toMatchObject({ status: "suspended" });
      await expect(theirs.resume(id)).rejects.toMatchObject({ code: "UNKNOWN_WORKFLOW" });
      const knowing = runtime({ workflows: [wf] });
      expect(await knowing.resume(id)).toMatchObject({ status: "completed", output: "b" });
      await expect(knowing.resume(newId())).rejects.toMatchObject({ code: "UNKNOWN_RUN" });
    });

    test("a run goes on with the version that it was started with", async () => {
      const rt = runtime();
      const name = newId();
      const make = (version: number) =>
        workflow({ name, version, input: Input }, async (ctx) => {
          await ctx.waitFor("go", z.unknown());
          return version;
        });
      const id = newId();
      await rt.execute(make(1), { n: 1 }, { id });
      const newer = make(2);
      await rt.signal(id, "go", 1, { dedupeId: "1" });
      expect(await rt.execute(newer, { n: 1 }, { id })).toMatchObject({ output: 1 });
      const stranger = runtime();
      const old = newId();
      await rt.execute(
        flow(async (ctx) => ctx.waitFor("go", z.unknown())),
        { n: 1 },
        { id: old },
      );
      await rt.signal(old, "go", 1, { dedupeId: "1" });
      await expect(stranger.resume(old)).rejects.toMatchObject({ code: "UNKNOWN_WORKFLOW" });
    });

    test.for([1, 2])(
      "a run is blocked when 2 processes in a row have crashed, and not before: %i crashed",
      async (lost) => {
        const rt = runtime({ lease: 100 });
        const wf = flow(async () => 1, { maxCrashes: 2 });
        const id = newId();
        const { journal } = rt;
        const hash = "0".repeat(64);
        const claim = { runId: id, owner: "gone", ttl: 30, workflow: wf.name, version: 1 };
        for (let crash = 0; crash < lost; crash += 1) {
          await journal.claim({ ...claim, input: '{"json":{"n":1}}', inputHash: hash });
          await sleep(60);
        }
        const known = runtime({ workflows: [wf] });
        const outcome = await known.resume(id);
        if (lost === 1) expect(outcome).toMatchObject({ status: "completed" });
        else expect(outcome).toMatchObject({ status: "blocked", error: { code: "RUN_POISONED" } });
      },
    );
  });

  describe("children", () => {
    test("a child is a run of its own, whose end wakes its parent", async () => {
      const rt = runtime();
      const child = flow(async (ctx, { n }) => {
        await ctx.waitFor("go", z.boolean());
        return n * 2;
      });
      const parent = flow(async (ctx) => ctx.child("double", child, { n: 21 }));
      const id = newId();
      const outcome = await rt.execute(parent, { n: 1 }, { id });
      expect(outcome).toMatchObject({ status: "suspended", reason: "child" });
      const childId = `${id}/double`;
      await rt.signal(childId, "go", true, { dedupeId: "a" });
      expect(await rt.resume(childId)).toMatchObject({ output: 42 });
      expect(await rt.resume(id)).toMatchObject({ status: "completed", output: 42 });
    });

    test("a failed child fails its parent as a step does", async () => {
      const rt = runtime();
      const child = flow(async () => {
        throw new TerminalError("BAD", "no good");
      });
      const parent = flow(async (ctx) =>
        ctx.child("one", child, { n: 1 }).catch(({ code }) => code),
      );
      expect(await toEnd(rt, parent, newId())).toMatchObject({ output: "BAD" });
    });
  });

  describe("the end of a run", () => {
    test("an outcome is kept for the span of `keep`; then the id is free", async () => {
      const rt = runtime();
      let times = 0;
      const keeping = (keep: Duration) => flow(async () => ++times, { keep });
      const [kept, forgotten] = [keeping("1h"), keeping(20)];
      const [id, free] = [newId(), newId()];
      expect(await rt.execute(kept, { n: 1 }, { id })).toMatchObject({ output: 1 });
      expect(await rt.execute(kept, { n: 1 }, { id })).toMatchObject({ output: 1 });
      await expect(rt.execute(kept, { n: 2 }, { id })).rejects.toThrow();
      expect(await rt.execute(forgotten, { n: 1 }, { id: free })).toMatchObject({ output: 2 });
      await sleep(50);
      expect(await rt.execute(forgotten, { n: 2 }, { id: free })).toMatchObject({ output: 3 });
    });
  });
}
