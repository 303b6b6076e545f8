import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { deadlineIn } from "../../../core/lock/duration.ts";
import type { WorkflowContext } from "../../../core/steps/index.ts";
import { flow } from "../../support/flow.ts";
import type { StepsHarness } from "./harness.ts";

/** Replays: the code gets the recorded answers in the recorded order. */
export function describeReplay({ newId, runtime, toEnd }: StepsHarness): void {
  describe("replays", () => {
    test.each([
      ["is another step", ["a", "b"], ["a", "x"], '"b" was expected, and x came'],
      ["is missing", ["a", "b"], ["a"], '"b" was expected, and the end came'],
      ["comes in another order", ["a", "b"], ["b", "a"], undefined],
    ])(
      "the run is blocked when a recorded step %s, and goes on with the old code",
      async (_, before, after, problem) => {
        const rt = runtime();
        let names = before;
        const done: string[] = [];
        const wf = flow(async (ctx) => {
          for (const name of names) await ctx.step(name, async () => done.push(name));
          if (names === before) await ctx.waitFor("go", z.unknown());
        });
        const id = newId();
        await rt.execute(wf, { n: 1 }, { id });
        names = after;
        // A signal makes the run due at once.
        await rt.signal(id, "go", 1, { dedupeId: "1" });
        // A part of the deadline is the patience with code that may still reach the recorded step.
        const tryOnce = () => rt.execute(wf, { n: 1 }, { id, deadline: deadlineIn(16_000) });
        const outcome = await tryOnce();
        expect(outcome).toMatchObject({ status: "blocked", error: { code: "NON_DETERMINISM" } });
        if (problem) expect((outcome as { error: Error }).error.message).toContain(problem);
        expect(done).toEqual(before);
        expect(await rt.journal.show(id)).toMatchObject({ status: "blocked" });
        const again = await tryOnce();
        expect(again).toMatchObject({ status: "blocked", error: { code: "NON_DETERMINISM" } });
        names = before;
        await rt.signal(id, "news", 1, { dedupeId: "1" });
        expect(await toEnd(rt, wf, id)).toMatchObject({ status: "completed" });
      },
    );

    test("the run is blocked when the code calls a step with other arguments, or of another kind", async () => {
      for (const change of ["args", "kind"]) {
        const rt = runtime();
        let changed = false;
        const wf = flow(async (ctx) => {
          const args = { sku: changed && change === "args" ? "b" : "a", quantity: 1 };
          if (changed && change === "kind") await ctx.sleep("reserve", 1);
          else await ctx.step("reserve", { args }, async () => {});
          await ctx.waitFor("go", z.unknown());
        });
        const id = newId();
        await rt.execute(wf, { n: 1 }, { id });
        changed = true;
        await rt.signal(id, "go", 1, { dedupeId: "1" });
        const outcome = await toEnd(rt, wf, id);
        expect(outcome).toMatchObject({ status: "blocked", error: { code: "NON_DETERMINISM" } });
      }
    });

    test("branches that complete in another order than they begin replay the same way", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const branch = async (ctx: WorkflowContext, name: string, millis: number) => {
        await ctx.step(`${name}1`, () => sleep(millis));
        await ctx.step(`${name}2`, () => sleep(millis));
        await ctx.waitFor(`${name}3`, z.unknown());
        return ctx.step(`${name}4`, async () => name);
      };
      const wf = flow(async (ctx) => Promise.all([branch(ctx, "a", 30), branch(ctx, "b", 5)]));
      const id = newId();
      const first = await ours.execute(wf, { n: 1 }, { id });
      expect(first).toMatchObject({ status: "suspended", reason: "signal" });
      for (const name of ["a3", "b3"]) await ours.signal(id, name, 1, { dedupeId: "1" });
      expect(await toEnd(theirs, wf, id)).toMatchObject({ output: ["a", "b"] });
    });

    test("a race has the same winner in the replay", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const won: unknown[] = [];
      const decided = Promise.withResolvers<void>();
      const wf = flow(async (ctx) => {
        const steps = [0, 1, 2].map((i) =>
          ctx.step(`runner${i}`, async () => {
            if (i !== 1) await decided.promise;
            return i;
          }),
        );
        const late = ctx.sleep("late", "10m").then(() => "late");
        won.push(await Promise.race([...steps, late]));
        decided.resolve();
        await Promise.all(steps);
        await ctx.waitFor("go", z.unknown());
        return won.at(-1);
      });
      const id = newId();
      await ours.execute(wf, { n: 1 }, { id });
      await ours.signal(id, "go", 1, { dedupeId: "1" });
      expect(await toEnd(theirs, wf, id)).toMatchObject({ output: 1 });
      expect(won).toEqual([1, 1]);
    });

    test("now, random and uuid return the same values in the replay", async () => {
      const rt = runtime();
      const seen: unknown[] = [];
      const wf = flow(async (ctx) => {
        seen.push([await ctx.now(), await ctx.random(), await ctx.uuid(), await ctx.uuid()]);
        // Not a sleep: a run whose sleep ends before the run is parked goes on without a replay.
        await ctx.waitFor("go", z.unknown());
      });
      const id = newId();
      await rt.execute(wf, { n: 1 }, { id });
      await rt.signal(id, "go", true, { dedupeId: "1" });
      expect(await toEnd(rt, wf, id)).toMatchObject({ status: "completed" });
      expect(seen).toHaveLength(2);
      expect(seen[1]).toEqual(seen[0]);
      const [, , first, second] = seen[0] as string[];
      expect(first).not.toBe(second);
    });

    test("patched is true in runs that had not passed the call before the change", async () => {
      const rt = runtime();
      let isNew = false;
      const wf = flow(async (ctx) => {
        await ctx.step("a", async () => {});
        const patched = isNew && (await ctx.patched("b-first"));
        if (patched) await ctx.step("b", async () => {});
        await ctx.step("c", async () => {});
        await ctx.waitFor("go", z.unknown());
        return patched;
      });
      const old = newId();
      await rt.execute(wf, { n: 1 }, { id: old });
      isNew = true;
      await rt.signal(old, "go", 1, { dedupeId: "1" });
      expect(await toEnd(rt, wf, old)).toMatchObject({ output: false });
      const young = newId();
      await rt.execute(wf, { n: 1 }, { id: young });
      await rt.signal(young, "go", 1, { dedupeId: "1" });
      expect(await toEnd(rt, wf, young)).toMatchObject({ output: true });
    });
  });
}
