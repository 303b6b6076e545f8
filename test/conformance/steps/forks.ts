import { describe, expect, test } from "vitest";
import { z } from "zod";
import { type Runtime, TerminalError } from "../../../core/steps/index.ts";
import { flow } from "../../support/flow.ts";
import type { StepsHarness } from "./harness.ts";

/** Runs that use the results of other runs. */
export function describeForks({ newId, recordsOf, runtime, toEnd }: StepsHarness): void {
  const items = [{ n: 0 }, { n: 1 }];
  const keyOf = ({ n }: { n: number }) => String(n);

  /** A workflow of three steps with undos, and what they and the undos were called with. */
  const saga = () => {
    const log: string[] = [];
    const wf = flow(async (ctx) => {
      const step = (name: string) =>
        ctx.step(
          name,
          { retry: false, effect: "none" },
          async ({ idempotencyKey }) => {
            log.push(idempotencyKey);
            if (saga.failing === name) throw new TerminalError("NO");
            return idempotencyKey;
          },
          async (_, { idempotencyKey, stepIdempotencyKey }) => {
            log.push(`${idempotencyKey} of ${stepIdempotencyKey}`);
            if (saga.stuck === name) throw new TerminalError("STUCK");
          },
        );
      return [await step("a"), await step("b"), await step("c")];
    });
    const saga = { wf, log, failing: "", stuck: "" };
    return saga;
  };

  const shownOf = async (rt: Runtime, id: string) => {
    const { now: _, forks: __, ...run } = (await rt.journal.show(id)) ?? {};
    return run;
  };

  describe("a fork", () => {
    test("uses the results before the step, executes the rest under its own keys, and leaves the origin alone", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const { wf, log } = saga();
      const [id, as] = [newId(), newId()];
      await toEnd(ours, wf, id);
      const before = await shownOf(ours, id);
      expect(await theirs.fork(id, { from: "b", as })).toBe(as);
      expect(await ours.fork(id, { from: "b", as })).toBe(as);
      expect(await toEnd(theirs, wf, as)).toMatchObject({
        status: "completed",
        output: [`${id}/a`, `${as}/b`, `${as}/c`],
      });
      expect(log).toEqual([`${id}/a`, `${id}/b`, `${id}/c`, `${as}/b`, `${as}/c`]);
      expect(await shownOf(ours, id)).toEqual(before);
      expect(await ours.journal.show(id)).toMatchObject({ origin: undefined, forks: [as] });
      expect(await ours.journal.show(as)).toMatchObject({ origin: { runId: id, step: "b" } });
      expect(await ours.fork(id, { from: "b", as })).toBe(as);
    });

    test("that fails undoes the used steps too, under the keys that the origin's undos have", async () => {
      const rt = runtime();
      const one = saga();
      const [id, as] = [newId(), newId()];
      await toEnd(rt, one.wf, id);
      await rt.fork(id, { from: "c", as });
      one.log.length = 0;
      one.failing = "c";
      expect(await toEnd(rt, one.wf, as)).toMatchObject({ status: "failed", compensated: "yes" });
      expect(one.log).toEqual([`${as}/c`, `${id}/~undo/b of ${id}/b`, `${id}/~undo/a of ${id}/a`]);
      one.log.length = 0;
      one.failing = "";
      await rt.retry(as);
      const again = [`${as}/a@1`, `${as}/b@1`, `${as}/c`];
      expect(await toEnd(rt, one.wf, as)).toMatchObject({ output: again });
    });

    test("executes anew what the origin has undone, and never undoes it twice", async () => {
      const rt = runtime();
      const one = saga();
      const [id, as] = [newId(), newId()];
      one.failing = "c";
      expect(await toEnd(rt, one.wf, id)).toMatchObject({ status: "failed" });
      await rt.fork(id, { from: "c", as });
      one.log.length = 0;
      expect(await toEnd(rt, one.wf, as)).toMatchObject({ status: "failed", compensated: "yes" });
      expect(one.log).toEqual([
        ...[`${as}/a@1`, `${as}/b@1`, `${as}/c`],
        ...[`${as}/~undo/b@1 of ${as}/b@1`, `${as}/~undo/a@1 of ${as}/a@1`],
      ]);
      const old = (await recordsOf(rt, as)).filter((one) => one.startsWith("~old/"));
      expect(old.map((one) => one.replace(/^~old\/\d+\//, ""))).toContain("~undo/a ok");
    });

    test("uses the result of a step without an undo that comes after an undone step", async () => {
      const rt = runtime();
      const log: string[] = [];
      let isDown = true;
      const wf = flow(async (ctx) => {
        await ctx.step(
          "reserve",
          async () => log.push("reserve"),
          async () => log.push("release"),
        );
        const quote = await ctx.step("quote", { effect: "none" }, async () => log.push("quote"));
        await ctx.step("charge", { retry: false, effect: "none" }, async () => {
          if (isDown) throw new TerminalError("AWAY");
        });
        return quote;
      });
      const id = newId();
      expect(await toEnd(rt, wf, id)).toMatchObject({ status: "failed" });
      isDown = false;
      const as = await rt.fork(id, { from: "charge" });
      expect(await toEnd(rt, wf, as)).toMatchObject({ status: "completed", output: 2 });
      expect(log).toEqual(["reserve", "quote", "release", "reserve"]);
    });

    test("of a fork uses the results of both, each under the keys of the run that has made it", async () => {
      const rt = runtime();
      const one = saga();
      const [id, second, third] = [newId(), newId(), newId()];
      await toEnd(rt, one.wf, id);
      await rt.fork(id, { from: "b", as: second });
      await toEnd(rt, one.wf, second);
      await rt.fork(second, { from: "c", as: third });
      one.failing = "c";
      one.log.length = 0;
      expect(await toEnd(rt, one.wf, third)).toMatchObject({ compensated: "yes" });
      expect(one.log).toEqual([
        `${third}/c`,
        `${second}/~undo/b of ${second}/b`,
        `${id}/~undo/a of ${id}/a`,
      ]);
    });

    test("uses values, sleeps, signals, patches, items and children, and starts new children of its own", async () => {
      const rt = runtime();
      const child = flow(async (ctx, { n }) =>
        ctx.step("grow", async ({ runId }) => `${runId} ${n}`),
      );
      const wf = flow(async (ctx) => {
        const values = [await ctx.uuid(), await ctx.random(), await ctx.now()];
        values.push(await ctx.uuid());
        await ctx.sleep("nap", 10);
        const isNew = await ctx.patched("p");
        const paid = await ctx.waitFor("paid", z.number());
        const doubled = await ctx.step.map("double", items, { keyOf }, async ({ n }) => 2 * n);
        const grown = await ctx.children("all", child, items, { keyOf });
        const one = await ctx.child("one", child, { n: 7 });
        const more = await ctx.children("more", child, items, { keyOf });
        return { values, isNew, paid, doubled, grown, one, more };
      });
      const [id, as] = [newId(), newId()];
      await rt.execute(wf, { n: 1 }, { id });
      await rt.signal(id, "paid", 5, { dedupeId: "1" });
      const first = await toEnd(rt, wf, id);
      if (first.status !== "completed") throw new Error(first.status);
      await rt.fork(id, { from: "more", as });
      const more = [`${as}/more[0] 0`, `${as}/more[1] 1`];
      const output = { ...(first.output as object), more };
      expect(await toEnd(rt, wf, as)).toMatchObject({ status: "completed", output });
      const last = await rt.fork(id, { from: "double[1]" });
      expect(await toEnd(rt, wf, last)).toMatchObject({ output: { paid: 5, doubled: [0, 2] } });
    });

    test("waits anew for the signals of the step and of later ones, and gets those that nobody has received", async () => {
      const rt = runtime();
      const wf = flow(async (ctx) => {
        const seen = [await ctx.waitFor("a", z.string()), await ctx.waitFor("a", z.string())];
        return [...seen, await ctx.waitFor("b", z.string())];
      });
      const [id, as] = [newId(), newId()];
      await rt.execute(wf, { n: 1 }, { id });
      for (const dedupeId of ["1", "2", "3"]) await rt.signal(id, "a", dedupeId, { dedupeId });
      await rt.signal(id, "b", "b1", { dedupeId: "1" });
      expect(await toEnd(rt, wf, id)).toMatchObject({ output: ["1", "2", "b1"] });
      await rt.fork(id, { from: "b", as });
      expect(await rt.execute(wf, { n: 1 }, { id: as })).toMatchObject({ status: "suspended" });
      await rt.signal(as, "b", "b2", { dedupeId: "2" });
      expect(await toEnd(rt, wf, as)).toMatchObject({ output: ["1", "2", "b2"] });
      const second = await rt.fork(id, { from: "a#2" });
      expect(await rt.execute(wf, { n: 1 }, { id: second })).toMatchObject({ status: "suspended" });
      await rt.signal(second, "b", "b3", { dedupeId: "1" });
      expect(await toEnd(rt, wf, second)).toMatchObject({ output: ["1", "3", "b3"] });
    });

    test("of an open run is a copy of its state, without the steps in progress", async () => {
      const rt = runtime();
      const log: string[] = [];
      const wf = flow(async (ctx) => {
        const slow = ctx.step(
          "slow",
          { retry: { base: 600_000 } },
          async () => {
            log.push("slow");
            if (log.length === 1) throw new Error("not yet");
          },
          async () => {},
        );
        const fast = ctx.step("fast", async () => log.length);
        await Promise.all([slow, fast]);
        return ctx.waitFor("go", z.string());
      });
      const [id, as] = [newId(), newId()];
      expect(await rt.execute(wf, { n: 1 }, { id })).toMatchObject({ reason: "retry-delay" });
      await rt.fork(id, { from: "slow", as });
      expect(await recordsOf(rt, as)).toEqual(["fast ok", `~fork/1/${id} ok`]);
      await rt.signal(as, "go", "on", { dedupeId: "1" });
      expect(await toEnd(rt, wf, as)).toMatchObject({ status: "completed", output: "on" });
      expect(log).toEqual(["slow", "slow"]);
      expect(await rt.journal.find(id)).toMatchObject({ status: "parked" });
    });

    test("of a blocked run goes on with code that fits the results before the step", async () => {
      const rt = runtime();
      let isOther = false;
      const wf = flow(async (ctx) => {
        const first = await ctx.step("a", async () => "first");
        if (isOther) await ctx.sleep("b", 1);
        else await ctx.step("b", async () => {});
        if (!isOther) await ctx.waitFor("go", z.string());
        return first;
      });
      const id = newId();
      await rt.execute(wf, { n: 1 }, { id });
      isOther = true;
      await rt.signal(id, "go", "on", { dedupeId: "1" });
      expect(await rt.execute(wf, { n: 1 }, { id })).toMatchObject({ status: "blocked" });
      const as = await rt.fork(id, { from: "b" });
      expect(await toEnd(rt, wf, as)).toMatchObject({ status: "completed", output: "first" });
    });

    test("is refused while the origin is undone, and after a failed undo of a step that it would use", async () => {
      const rt = runtime();
      const one = saga();
      const [id, open] = [newId(), newId()];
      const slow = flow(async (ctx) => {
        const undo = async () => {
          throw new Error("later");
        };
        await ctx.step("a", { retry: { base: 600_000 } }, async () => {}, undo);
        throw new TerminalError("NO");
      });
      const parked = await rt.execute(slow, { n: 1 }, { id: open });
      expect(parked).toMatchObject({ reason: "retry-delay" });
      await expect(rt.fork(open, { from: "a" })).rejects.toMatchObject({ code: "RUN_UNDOING" });

      Object.assign(one, { failing: "c", stuck: "b" });
      expect(await toEnd(rt, one.wf, id)).toMatchObject({ compensated: "no" });
      await expect(rt.fork(id, { from: "c" })).rejects.toMatchObject({ code: "UNDO_FAILED" });
      Object.assign(one, { failing: "", stuck: "" });
      const fork = await rt.fork(id, { from: "b" });
      expect(await toEnd(rt, one.wf, fork)).toMatchObject({
        output: expect.arrayContaining([`${fork}/b`]),
      });
    });

    test("is refused for an unknown run or step by name, and for an id that is in use", async () => {
      const rt = runtime();
      const { wf } = saga();
      const [id, as] = [newId(), newId()];
      await expect(rt.fork(id, { from: "a" })).rejects.toMatchObject({ code: "UNKNOWN_RUN" });
      await rt.start(wf, { n: 1 }, { id });
      await expect(rt.fork(id, { from: "a" })).rejects.toThrow("it has no steps yet");
      await toEnd(rt, wf, id);
      await expect(rt.fork(id, { from: "d" })).rejects.toMatchObject({
        code: "UNKNOWN_STEP",
        message: `run "${id}" has no step "d"; its steps are a, b, c`,
      });
      await rt.fork(id, { from: "b", as });
      for (const other of [
        { from: "c", as },
        { from: "a", as: id },
      ]) {
        await expect(rt.fork(id, other)).rejects.toMatchObject({ code: "FORK_CONFLICT" });
      }
      await expect(rt.fork(id, { from: "" })).rejects.toThrow(/from/);
    });

    test("is no child of its origin's parent", async () => {
      const rt = runtime();
      const child = flow(async (ctx) => ctx.step("grow", async () => "grown"));
      const wf = flow(async (ctx, input) => ctx.child("one", child, input));
      const [id, as] = [newId(), newId()];
      await toEnd(rt, wf, id);
      await rt.fork(`${id}/one`, { from: "grow", as });
      expect(await rt.resume(as)).toMatchObject({ status: "completed" });
      expect((await rt.journal.show(id))?.signals).toHaveLength(1);
    });
  });
}
