import { describe, expect, test } from "vitest";
import { decodeChildResult } from "../../core/journal/child-result.ts";
import type { NewRun } from "../../core/journal/runs.ts";
import type { JournalFixture } from "../support/journal-under-test.ts";
import { expectRejection } from "../support/rejection.ts";
import {
  claimed,
  claimOf,
  DONE,
  dueOf,
  dueQuery,
  FOREVER,
  newRunId,
  running,
  STALE,
  taken,
} from "../support/runs.ts";
import { pause, until } from "../support/until.ts";

/** Tests of runs that are started in batches, and of parents that wait for them. */
export function describeChildren({ journal, underTest }: JournalFixture): void {
  const newRun = (more: Partial<NewRun> = {}): NewRun => {
    const { ttl: _, ...run } = claimOf(newRunId(), more);
    return run;
  };

  describe("a start of several runs", () => {
    test("creates them due at once, and changes none that exists", async () => {
      const workflow = newRunId();
      const parent = { runId: newRunId(), signal: "child" };
      const runs = Array.from({ length: 250 }, () => newRun({ workflow, parent }));
      const due = { kind: "parked", parent, reason: "deadline", wakeIn: 0, awaitsChildren: false };
      const started = runs.map(() => due);
      expect(await journal.start(runs)).toEqual(started);
      const found = await dueOf(journal, workflow);
      expect([...found].sort()).toEqual(runs.map(({ runId }) => runId).sort());
      const [first, second] = runs as [NewRun, NewRun];
      const held = await claimed(journal, { ...first, ttl: 300_000 });
      expect(held).toMatchObject({ input: first.input, parent, crashes: 0 });
      const ended = await claimed(journal, { ...second, ttl: 300_000 });
      await journal.finish({ ...second, epoch: ended.epoch }, DONE);
      const again = await journal.start(runs.toReversed());
      expect(again.slice(0, -2)).toEqual(started.slice(2));
      expect(again.slice(-2)).toMatchObject([
        { kind: "ended", ending: { status: "completed", value: DONE.value } },
        { kind: "busy", parent },
      ]);
      expect(await journal.renew({ ...first, epoch: held.epoch }, 1_000)).toBeDefined();
    });

    test("tells of runs with another workflow, another input or another parent", async () => {
      const parent = { runId: newRunId(), signal: "a" };
      const [free, owned] = [newRun(), newRun({ parent })] as const;
      await journal.start([free, owned]);
      const others = [
        { ...free, workflow: "other" },
        { ...owned, parent: { ...parent, signal: "b" } },
      ];
      expect(await journal.start(others)).toMatchObject([
        { kind: "conflict" },
        { kind: "parked", parent },
      ]);
      expect(await journal.start([{ ...owned, inputHash: "0".repeat(64) }])).toEqual([
        { kind: "conflict" },
      ]);
    });

    test("creates a run anew whose retention is over", async () => {
      const run = newRun();
      const { epoch } = await claimed(journal, { ...run, ttl: 20_000 });
      await journal.append({ ...run, epoch }, {
        ...{ key: "a", kind: "step", outcome: "ok", attempt: 1, value: "1" },
      } as const);
      await journal.finish({ ...run, epoch }, { ...DONE, keep: 0 });
      await pause(5);
      expect(await journal.start([run, newRun()])).toMatchObject([{ kind: "parked" }, {}]);
      expect(await claimed(journal, { ...run, ttl: 20_000 })).toMatchObject({ records: [] });
    });

    test("is refused for a parent that has lost its run, and for one that has ended", async () => {
      const { claim, ...late } = await running(journal, { ttl: 1 });
      const parent = { runId: late.runId, signal: "child" };
      const next = await taken(journal, late.runId);
      const [refused, child] = [newRun({ parent }), newRun({ parent })];
      await expectRejection(journal.start([refused], late), STALE);
      expect(await journal.start([child], next)).toMatchObject([{ kind: "parked", parent }]);
      expect(await journal.start([child], next)).toMatchObject([{ kind: "parked", parent }]);
      await journal.finish(next, DONE);
      await expectRejection(journal.start([refused], next), STALE);
      await expectRejection(journal.start([refused], { ...next, runId: newRunId() }), STALE);
      expect(await journal.find(refused.runId)).toBeUndefined();
    });

    test("by several callers at once creates each run once", async () => {
      const clients = Array.from({ length: 3 }, () => underTest.open());
      const workflow = newRunId();
      const runs = Array.from({ length: 60 }, () => newRun({ workflow }));
      const orders = [runs, runs.toReversed(), runs.slice(20)];
      await Promise.all(clients.map((client, i) => client.journal.start(orders[i] ?? [])));
      expect(await dueOf(journal, workflow)).toHaveLength(60);
      for (const client of clients) await client.close();
    });

    test("refuses equal ids and too many runs", async () => {
      const run = newRun();
      await expect(journal.start([run, run])).rejects.toThrow(/two runs have the id/);
      const many = Array.from({ length: 1_001 }, () => run);
      await expect(journal.start(many)).rejects.toThrow(/1000|1,000/);
      expect(await journal.start([])).toEqual([]);
    });
  });

  test("the due runs of one parent are claimed", async () => {
    const workflow = newRunId();
    const parents = [newRunId(), newRunId()] as const;
    const runs = parents.map((runId) => newRun({ workflow, parent: { runId, signal: "a" } }));
    await journal.start([...runs, newRun({ workflow })]);
    const [parent] = parents;
    expect(await journal.claimDue(dueQuery(workflow, { parent: "nobody" }))).toEqual([]);
    // A claim passes over a run whose row another claim has locked.
    const due = await until(async () => {
      const found = await journal.claimDue(dueQuery(workflow, { parent }));
      return found.length > 0 && found;
    });
    expect(due).toMatchObject([{ runId: runs[0]?.runId, parent: { runId: parent } }]);
    expect(await journal.claimDue(dueQuery(workflow, { parent }))).toEqual([]);
  });

  describe("a cancellation of the children of a run", () => {
    test("cancels all open ones that are not detached, and may be repeated", async () => {
      const workflow = newRunId();
      const parent = { runId: newRunId(), signal: "child" };
      const [due, held, detached, stranger] = [
        newRun({ workflow, parent }),
        newRun({ workflow, parent }),
        newRun({ workflow, parent, detached: true }),
        newRun({ workflow, parent: { ...parent, runId: newRunId() } }),
      ] as const;
      await journal.start([due, detached, stranger]);
      const { epoch } = await claimed(journal, { ...held, ttl: 20_000 });
      const ids = [due.runId, held.runId].sort();
      for (let time = 1; time <= 2; time += 1) {
        const { open, compensated } = await journal.cancelChildren(parent.runId);
        expect([...open].sort()).toEqual(ids);
        expect(compensated).toBe("yes");
      }
      expect(await journal.renew({ ...held, epoch }, 1_000)).toMatchObject({ cancelled: true });
      const cancelled = async ({ runId }: NewRun) => (await journal.find(runId))?.cancelled;
      expect([await cancelled(due), await cancelled(detached), await cancelled(stranger)]).toEqual([
        true,
        false,
        false,
      ]);
    });

    test("makes parked ones due", async () => {
      const parent = { runId: newRunId(), signal: "child" };
      const { claim, ...child } = await running(journal, { parent });
      await journal.park(child, FOREVER);
      expect((await journal.take(claim)).kind).toBe("parked");
      await journal.cancelChildren(parent.runId);
      expect(await journal.take(claim)).toMatchObject({ kind: "claimed", cancelled: true });
    });

    test("tells how the work of the ended ones was undone", async () => {
      const parent = { runId: newRunId(), signal: "child" };
      const end = async (compensated: "yes" | "no" | "unclear", detached = false) => {
        const child = await running(journal, { parent, detached });
        await journal.finish(child, { ...DONE, status: "failed", compensated });
        return (await journal.cancelChildren(parent.runId)).compensated;
      };
      const told = [await end("no", true), await end("yes"), await end("unclear"), await end("no")];
      expect(told).toEqual(["yes", "yes", "unclear", "no"]);
      expect(await journal.cancelChildren(newRunId())).toEqual({ open: [], compensated: "yes" });
    });

    test("reaches more children than one statement names", async ({ skip }) => {
      skip(underTest.slowness !== undefined, underTest.slowness);
      const parent = { runId: newRunId(), signal: "child" };
      const runs = Array.from({ length: 700 }, () => newRun({ parent }));
      await journal.start(runs);
      expect((await journal.cancelChildren(parent.runId)).open).toHaveLength(700);
      expect((await journal.find(runs[0]?.runId ?? ""))?.cancelled).toBe(true);
      expect((await journal.find(runs[699]?.runId ?? ""))?.cancelled).toBe(true);
    });
  });

  describe("a child that ends once more, after its parent", () => {
    const end = async (parentEnd: "failed" | "completed", detached = false) => {
      const { claim, ...parent } = await running(journal);
      const child = await running(journal, {
        ...{ parent: { runId: parent.runId, signal: "child" }, detached },
      });
      const failed = { ...DONE, status: "failed", compensated: "no" } as const;
      await journal.finish(child, { ...failed, parent: parent.runId });
      await journal.finish(parent, parentEnd === "failed" ? failed : DONE);
      const before = await journal.find(parent.runId);
      expect(await journal.reopen(child, { supersede: [], isRetry: false })).toBe(true);
      const { epoch } = await claimed(journal, child.claim);
      const undone = { ...failed, compensated: "yes", parent: parent.runId } as const;
      await journal.finish({ ...child, epoch }, undone);
      return { claim, parent, before };
    };

    test("reopens the parent, which says anew how its work was undone", async () => {
      const { claim, parent } = await end("failed");
      expect(await journal.show(parent.runId)).toMatchObject({ status: "parked" });
      const { epoch, signals } = await claimed(journal, claim);
      expect(epoch).toBeGreaterThan(parent.epoch);
      expect(signals).toHaveLength(1);
      expect((await journal.cancelChildren(parent.runId)).compensated).toBe("yes");
    });

    test("does not change a parent that has completed, nor that of a detached child", async () => {
      for (const { parent, before } of [await end("completed"), await end("failed", true)]) {
        expect(await journal.find(parent.runId)).toEqual(before);
      }
    });
  });

  describe("a run that is parked for children", () => {
    const CHILDREN = { ...FOREVER, reason: "child" } as const;

    const family = async (count: number) => {
      const { claim, ...parent } = await running(journal);
      const children = await Promise.all(
        Array.from({ length: count }, () =>
          running(journal, { parent: { runId: parent.runId, signal: "child" } }),
        ),
      );
      const end = async (at: number) => journal.finish(children[at] as never, DONE);
      return { claim, parent, end };
    };

    test("is due with the last of the ends that it waits for", async () => {
      const { claim, parent, end } = await family(3);
      const children = { count: 3, within: 600_000 };
      await journal.park(parent, { ...CHILDREN, children });
      const parked = { kind: "parked", awaitsChildren: true };
      expect(await journal.take(claim)).toMatchObject({
        ...parked,
        wakeIn: Number.POSITIVE_INFINITY,
      });
      await end(0);
      const first = await journal.take(claim);
      expect(first).toMatchObject(parked);
      if (first.kind === "parked") expect(first.wakeIn).toBeLessThanOrEqual(600_000);
      await pause(20);
      await end(1);
      const second = await journal.take(claim);
      // The pause counts from the first end.
      if (first.kind === "parked" && second.kind === "parked") {
        expect(second.wakeIn).toBeLessThan(first.wakeIn);
      }
      await end(2);
      const { signals } = await claimed(journal, claim);
      expect(signals.map(({ payload }) => decodeChildResult(payload).status)).toEqual(
        signals.map(() => "completed"),
      );
      expect(signals).toHaveLength(3);
    });

    test("is due some time after the first end", async () => {
      const { claim, parent, end } = await family(2);
      await journal.park(parent, { ...CHILDREN, children: { count: 2, within: 300 } });
      await end(0);
      await until(async () => (await journal.take(claim)).kind === "claimed");
    });

    test("counts the ends between its claim and its park", async () => {
      const { claim, parent, end } = await family(3);
      await end(0);
      await journal.park(parent, { ...CHILDREN, children: { count: 3, within: 600_000 } });
      const parked = await journal.take(claim);
      expect(parked).toMatchObject({ kind: "parked" });
      if (parked.kind === "parked") expect(parked.wakeIn).toBeLessThanOrEqual(600_000);
      await end(1);
      await end(2);
      const { epoch, signals } = await claimed(journal, claim);
      const next = { ...CHILDREN, signalsSeen: 2, children: { count: 1, within: 600_000 } };
      await journal.park({ ...parent, epoch }, next);
      expect(signals).toHaveLength(3);
      expect((await journal.take(claim)).kind).toBe("claimed");
    });

    test("is due at once with any other signal, before and after its park", async () => {
      const { claim, parent, end } = await family(2);
      await journal.signal(parent.runId, { name: "a", dedupeId: "1", payload: "" });
      await end(0);
      const children = { count: 5, within: 600_000 };
      await journal.park(parent, { ...CHILDREN, children });
      const { epoch } = await claimed(journal, claim);
      const next = { ...CHILDREN, signalsSeen: 2, children };
      await journal.park({ ...parent, epoch }, next);
      await end(1);
      expect((await journal.take(claim)).kind).toBe("parked");
      await journal.signal(parent.runId, { name: "a", dedupeId: "2", payload: "" });
      expect((await journal.take(claim)).kind).toBe("claimed");
    });

    test("is due at the time of its park if no child ends before", async () => {
      const { claim, parent } = await family(1);
      const children = { count: 1, within: 600_000 };
      await journal.park(parent, { ...CHILDREN, wakeIn: 5, children });
      await until(async () => (await journal.take(claim)).kind === "claimed");
    });
  });
}
