import { describe, expect, test } from "vitest";
import { z } from "zod";
import type { Journal } from "../../../core/journal/journal.ts";
import {
  type AnyWorkflow,
  createRuntime,
  type Runtime,
  TerminalError,
} from "../../../core/steps/index.ts";
import { injectFaults } from "../../../core/steps/testing.ts";
import { runWorker } from "../../../functions/worker/index.ts";
import { flow } from "../../support/flow.ts";
import { pause, until } from "../../support/until.ts";
import type { StepsHarness } from "./harness.ts";

/** Children of runs: one, and many. */
export function describeChildRuns({ newId, runtime, toEnd, recordsOf }: StepsHarness): void {
  const numbers = (count: number) => Array.from({ length: count }, (_, n) => ({ n }));
  const keyOf = ({ n }: { n: number }) => String(n);

  /** Executes the run with workers until it has ended. Resolves to its ending. */
  const work = async (
    workers: readonly Runtime[],
    wf: AnyWorkflow,
    id: string,
    journal = workers[0]?.journal,
  ) => {
    const [first] = workers as [Runtime];
    const stop = new AbortController();
    const working = workers.map((one) => runWorker({ runtime: one, signal: stop.signal }));
    await first.start(wf as never, { n: 0 } as never, { id });
    const ended = () => journal?.show(id).then((run) => run?.ending && run);
    const run = await until(ended, 200_000).finally(() => stop.abort());
    await Promise.all(working);
    return run;
  };

  /** Counts the calls of a runtime's journal by name. */
  const counting = (journal: Journal) => {
    const calls: Record<string, number> = {};
    const counted = injectFaults(journal, (point) => {
      const [name = "", when] = point.split(":");
      if (when === "before") calls[name] = (calls[name] ?? 0) + 1;
    });
    const claims = () => (calls.take ?? 0) + (calls.claim ?? 0) + (calls.claimDue ?? 0);
    return { counted, calls, claims };
  };

  describe("children", () => {
    test("answer in the order of the items, a few open at a time", async () => {
      const rt = runtime();
      const open = new Set<number>();
      let most = 0;
      const child = flow(async (ctx, { n }) => {
        most = Math.max(most, open.add(n).size);
        await ctx.step("work", async () => {});
        await ctx.sleep("nap", n % 3 === 0 ? 20 : 0);
        open.delete(n);
        return n * 10;
      });
      const options = { keyOf, concurrency: 4 };
      const wf = flow(async (ctx) => ctx.children("all", child, numbers(12), options));
      const id = newId();
      const outcome = await toEnd(rt, wf, id);
      expect(outcome).toMatchObject({ output: numbers(12).map(({ n }) => n * 10) });
      expect(most).toBeLessThanOrEqual(4);
      expect(await rt.journal.show(`${id}/all[11]`)).toMatchObject({ status: "completed" });
    });

    test("need no worker: the process that executes the parent resumes them", async () => {
      const rt = runtime();
      const grandchild = flow(async (_, { n }) => n + 1);
      const child = flow(
        async (ctx, input) => Number(await ctx.child("one", grandchild, input)) * 2,
      );
      const wf = flow(async (ctx) => ctx.children("all", child, numbers(3), { keyOf }));
      // Not one execution: a claim passes over a child whose row another claim has locked.
      expect(await toEnd(rt, wf, newId())).toMatchObject({ output: [2, 4, 6] });
    });

    test("fail with the first failure once the open ones have ended, and start no others", async () => {
      const rt = runtime();
      const begun = new Set<number>();
      const child = flow(async (_, { n }) => {
        begun.add(n);
        if (n === 1) throw new TerminalError("ONE");
        return n;
      });
      const options = { keyOf, concurrency: 3 };
      const wf = flow(async (ctx) => ctx.children("all", child, numbers(9), options));
      const outcome = await toEnd(rt, wf, newId());
      expect(outcome).toMatchObject({ status: "failed", error: { code: "ONE" } });
      expect([...begun].sort()).toEqual([0, 1, 2]);
    });

    test("are all started and collected with `onError: collect`", async () => {
      const rt = runtime();
      const child = flow(async (_, { n }) => {
        if (n % 2) throw new TerminalError("ODD");
        return n;
      });
      const wf = flow(async (ctx) => {
        const options = { keyOf, concurrency: 2, onError: "collect" } as const;
        const results = await ctx.children("all", child, numbers(4), options);
        return results.map((one) => (one.status === "fulfilled" ? one.value : one.reason.code));
      });
      expect(await toEnd(rt, wf, newId())).toMatchObject({ output: [0, "ODD", 2, "ODD"] });
    });

    test("are carried by three workers, and their results survive a replay", async () => {
      const child = flow(async (ctx, { n }) => {
        // Long enough for each of the workers to look for due runs.
        await ctx.step("work", () => pause(100));
        return n;
      });
      const wf = flow(async (ctx) => {
        const all = await ctx.children("all", child, numbers(100), { keyOf });
        await ctx.sleep("nap", 50);
        return all.length;
      });
      const workflows = [wf, child];
      const workers = ["a", "b", "c"].map((owner) => runtime({ owner, workflows }));
      const id = newId();
      const run = await work(workers, wf, id);
      expect(run).toMatchObject({ status: "completed" });
      const owners = new Set<string>();
      for (let n = 0; n < 100; n += 1) {
        const shown = await workers[0]?.journal.show(`${id}/all[${n}]`);
        owners.add(shown?.owner ?? "");
      }
      expect(owners.size).toBeGreaterThan(1);
    }, 240_000);

    test("take a number of claims and of calls that grows with their number alone", async () => {
      const { journal } = runtime();
      for (const count of [50, 100, 200]) {
        const { counted, calls, claims } = counting(journal);
        const child = flow(async (_, { n }) => n);
        const options = { keyOf, concurrency: 20 };
        const wf = flow(async (ctx) => ctx.children("all", child, numbers(count), options));
        const rt = runtime({ journal: counted, workflows: [wf, child] });
        // The journal that is not counted: how often the end is asked for depends on the machine.
        const run = await work([rt], wf, newId(), journal);
        expect(run).toMatchObject({ status: "completed" });
        // One claim per child, one per wake of the parent, and one that finds nothing after each call that wakes workers.
        expect(claims(), `claims of ${count} children`).toBeLessThan(5 * count + 50);
        const { renew: _, ...others } = calls;
        const all = Object.values(others).reduce((a, b) => a + b, 0);
        expect(all, `calls of ${count} children`).toBeLessThan(8 * count + 150);
      }
    }, 240_000);

    test("that a parent awaits one by one at the same time are not claimed by its wakes", async () => {
      const { journal } = runtime();
      for (const count of [50, 100]) {
        const { counted, claims } = counting(journal);
        const child = flow(async (_, { n }) => n);
        const wf = flow(async (ctx) => {
          const all = numbers(count).map((input) => ctx.child(`c${input.n}`, child, input));
          return (await Promise.all(all)).length;
        });
        const rt = runtime({ journal: counted, workflows: [wf, child] });
        // The journal that is not counted: how often the end is asked for depends on the machine.
        const run = await work([rt], wf, newId(), journal);
        expect(run).toMatchObject({ status: "completed" });
        expect(claims(), `claims of ${count} children`).toBeLessThan(5 * count + 50);
      }
    }, 240_000);

    test("end once when the process that executes them is stopped anywhere", async () => {
      const rt = runtime();
      const child = flow(async (ctx, { n }) => ctx.step("work", async () => n));
      const options = { keyOf, concurrency: 2 };
      const wf = flow(async (ctx) => ctx.children("all", child, numbers(3), options));
      const stopAt = async (stop: number, when: "before" | "after") => {
        let calls = 0;
        const cut = injectFaults(rt.journal, (point) => {
          const isCounted = !point.startsWith("renew") && point.endsWith(when);
          if (isCounted && ++calls >= stop) throw new Error("cut off");
        });
        const id = newId();
        const stopped = createRuntime({ journal: cut, lease: 1_000 });
        await stopped.execute(wf, { n: 1 }, { id }).catch(() => {});
        expect(await toEnd(rt, wf, id)).toMatchObject({ output: [0, 1, 2] });
        expect((await rt.journal.show(id))?.signals).toHaveLength(3);
      };
      const stops = Array.from({ length: 8 }, (_, i) => 2 * i + 1);
      await Promise.all(stops.flatMap((stop) => [stopAt(stop, "before"), stopAt(stop, "after")]));
    }, 240_000);

    test("that end after a crash before their start was recorded do not hold up the parent", async () => {
      const rt = runtime();
      const child = flow(async (_, { n }) => n);
      const options = { keyOf, concurrency: 2 };
      const wf = flow(async (ctx) => ctx.children("all", child, numbers(5), options));
      const id = newId();
      const cut = injectFaults(rt.journal, (point) => {
        if (point === "append:before") throw new Error("cut off");
      });
      const stopped = createRuntime({ journal: cut, lease: 5_000 });
      await expect(stopped.execute(wf, { n: 1 }, { id })).rejects.toThrow("cut off");
      for (const n of [0, 1]) await stopped.resume(`${id}/all[${n}]`);
      expect(await toEnd(rt, wf, id)).toMatchObject({ output: [0, 1, 2, 3, 4] });
    });

    test("refuse equal keys, and other items in a replay", async () => {
      const rt = runtime();
      const child = flow(async (ctx) => ctx.waitFor("go", z.boolean()));
      const twice = flow(async (ctx) =>
        ctx.children("all", child, numbers(2), { keyOf: () => "a" }),
      );
      const refused = await rt.execute(twice, { n: 1 }, { id: newId() });
      expect(refused).toMatchObject({ status: "blocked", error: { code: "MISUSE" } });
      let count = 2;
      const wf = flow(async (ctx) => ctx.children("all", child, numbers(count), { keyOf }));
      const id = newId();
      expect(await rt.execute(wf, { n: 1 }, { id })).toMatchObject({ status: "suspended" });
      expect(await recordsOf(rt, id)).toEqual(["all@1 started started"]);
      count = 3;
      await rt.signal(`${id}/all[0]`, "go", true, { dedupeId: "1" });
      await rt.resume(`${id}/all[0]`);
      await rt.signal(`${id}/all[1]`, "go", true, { dedupeId: "1" });
      await rt.resume(`${id}/all[1]`);
      const outcome = await rt.execute(wf, { n: 1 }, { id });
      expect(outcome).toMatchObject({ status: "blocked", error: { code: "NON_DETERMINISM" } });
    });
  });
}
