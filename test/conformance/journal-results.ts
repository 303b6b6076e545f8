import { describe, expect, test } from "vitest";
import { decodeChildResult } from "../../core/journal/child-result.ts";
import type { Journal } from "../../core/journal/journal.ts";
import type { RunClaim, RunKey } from "../../core/journal/runs.ts";
import type { JournalFixture } from "../support/journal-under-test.ts";
import { expectRejection } from "../support/rejection.ts";
import {
  claimed,
  claimOf,
  DONE,
  dueOf,
  FOREVER,
  HASH,
  mine,
  newRunId,
  record,
  running,
  STALE,
} from "../support/runs.ts";
import { pause, until } from "../support/until.ts";

/** Tests of ended runs and of lists of runs. */
export function describeResults({ journal, underTest }: JournalFixture): void {
  describe("a run that has ended", () => {
    test("reports its result, and accepts a repetition of its end", async () => {
      const { claim, ...run } = await running(journal);
      await journal.append(run, record("a"));
      const ending = { ...DONE, status: "failed", value: '"why"', compensated: "yes" } as const;
      await journal.finish(run, ending);
      await journal.finish(run, DONE);
      const { keep, ...ended } = ending;
      const answer = { kind: "ended", ending: { ...ended, at: expect.any(Date) } };
      expect(await journal.claim(claim)).toEqual(answer);
      expect(await journal.take(claim)).toEqual(answer);
      const shown = await journal.show(run.runId);
      expect(shown).toMatchObject({ status: "failed", ending: ended, dueAt: undefined });
      expect(shown?.records).toHaveLength(1);
      expect(await dueOf(journal, "order")).not.toContain(run.runId);
    });

    test("does not complete after its cancellation: it is due, and its parent is not signalled", async () => {
      const parent = await running(journal);
      const child = { runId: parent.runId, signal: "child" };
      for (const status of ["completed", "failed", "cancelled"] as const) {
        const run = await running(journal, { parent: child });
        await journal.cancel(run.runId);
        const answer = status === "completed" ? "cancelled" : "ended";
        expect(await journal.finish(run, { ...DONE, status })).toBe(answer);
        expect(await journal.finish(run, { ...DONE, status })).toBe(answer);
        const found = await journal.find(run.runId);
        expect(found?.status).toBe(status === "completed" ? "parked" : status);
      }
      expect((await journal.show(parent.runId))?.signals).toHaveLength(2);
      const run = await running(journal);
      await journal.cancel(run.runId);
      await journal.finish(run, DONE);
      const taken = await journal.take({ runId: run.runId, owner: "next", ttl: 10_000 });
      expect(taken).toMatchObject({ kind: "claimed", cancelled: true, crashes: 0 });
      await expect(journal.finish(run, DONE)).rejects.toMatchObject({ code: "STALE_RUN" });
    });

    test("signals its parent once, and wakes it", async () => {
      const parent = await running(journal);
      const child = await running(journal, {
        parent: { runId: parent.runId, signal: "child/pay" },
      });
      await journal.park(parent, FOREVER);
      const ending = {
        ...DONE,
        value: '"\u0001🫖"',
        status: "failed",
        compensated: "yes",
      } as const;
      await journal.finish(child, ending);
      await journal.finish(child, ending);
      const next = await claimed(journal, parent.claim);
      expect(next.signals).toHaveLength(1);
      const [signal] = next.signals;
      expect(signal).toMatchObject({ name: "child/pay", dedupeId: child.runId });
      const { keep, ...told } = ending;
      expect(decodeChildResult(signal?.payload ?? "")).toEqual(told);
      // A seen signal does not wake the parent again.
      await journal.park({ ...parent, epoch: next.epoch }, { ...FOREVER, signalsSeen: 1 });
      expect((await journal.claim(parent.claim)).kind).toBe("parked");
      expect(await journal.show(parent.runId)).toMatchObject({ version: 1, workflow: "order" });
    });

    test("may have a held, an ended or a missing parent", async () => {
      const parents = await Promise.all([running(journal), running(journal)]);
      await journal.finish(parents[1], DONE);
      for (const { runId } of [...parents, { runId: "nobody" }]) {
        const child = await running(journal, { parent: { runId, signal: "child" } });
        await journal.finish(child, DONE);
        expect(await journal.show(child.runId)).toMatchObject({ status: "completed" });
      }
      expect(await journal.renew(parents[0], 1_000)).toEqual({ cancelled: false, signals: 1 });
      // For a retry of the parent.
      expect(await journal.show(parents[1].runId)).toMatchObject({
        ...{ status: "completed", dueAt: undefined },
        signals: [{ name: "child" }],
      });
      expect(await journal.show("nobody")).toBeUndefined();
    });

    test("is counted by its parent when 16 children end at once", async () => {
      const parent = await running(journal);
      const clients = [underTest.open(), underTest.open()];
      const children = await Promise.all(
        Array.from({ length: 16 }, () =>
          running(journal, { parent: { runId: parent.runId, signal: "child" } }),
        ),
      );
      await Promise.all(
        children.flatMap((child, i) => [
          clients[i % 2]?.journal.finish(child, DONE),
          clients[(i + 1) % 2]?.journal.finish(child, DONE),
        ]),
      );
      expect(await journal.renew(parent, 1_000)).toMatchObject({ signals: 16 });
      expect((await journal.show(parent.runId))?.signals).toHaveLength(16);
      for (const client of clients) await client.close();
    });

    test("does not exist after its retention, and its id creates a new run", async () => {
      const { claim, ...run } = await running(journal);
      await journal.append(run, record("old"));
      await journal.signal(run.runId, { name: "old", dedupeId: "1", payload: "" });
      await journal.cancel(run.runId);
      await journal.finish(run, { ...DONE, status: "cancelled", keep: 50 });
      await pause(100);
      const signal = { name: "a", dedupeId: "1", payload: "" };
      expect(await journal.take(claim)).toEqual({ kind: "missing" });
      expect(await journal.signal(run.runId, signal)).toBe("missing");
      expect(await journal.cancel(run.runId)).toBe("missing");
      expect(await journal.show(run.runId)).toBeUndefined();
      expect((await journal.list({ limit: 10_000 })).map(({ runId }) => runId)).not.toContain(
        run.runId,
      );
      // The new run may have another input.
      const other = { ...claim, inputHash: HASH.replace("0", "1"), input: "new", version: 3 };
      const answers = await Promise.all([journal.claim(other), journal.claim(other)]);
      expect(answers.map(({ kind }) => kind).sort()).toEqual(["busy", "claimed"]);
      const next = mine(answers.find(({ kind }) => kind === "claimed") ?? { kind: "none" });
      const nothing = { records: [], signals: [], crashes: 0, cancelled: false };
      expect(next).toMatchObject({ ...nothing, input: "new", version: 3 });
      expect(next.epoch).not.toBe(run.epoch);
      await expectRejection(journal.append(run, record("late")), STALE);
    });

    test("is purged after its retention, and shares no epoch with a new run of the same id", async () => {
      const runId = newRunId();
      const kept = await running(journal);
      await journal.finish(kept, DONE);
      const epochs: bigint[] = [];
      for (let i = 0; i < 5; i += 1) {
        const { epoch } = await claimed(journal, claimOf(runId));
        for (const stale of epochs) {
          await expectRejection(journal.append({ runId, epoch: stale }, record("late")), STALE);
        }
        epochs.push(epoch);
        await journal.append({ runId, epoch }, record("a"));
        await journal.finish({ runId, epoch }, { ...DONE, keep: 0 });
        await until(async () => {
          await journal.purge(1_000);
          return (await journal.show(runId)) === undefined;
        });
      }
      expect(new Set(epochs).size).toBe(5);
      expect(await journal.show(kept.runId)).toMatchObject({ status: "completed" });
    });
  });

  // Other tests purge.
  test("a list goes on after a run that is over, until the run is purged", {
    concurrent: false,
  }, async () => {
    const before = await running(journal);
    await pause(3);
    const over = await running(journal);
    await journal.finish(over, { ...DONE, keep: 0 });
    const listed = await journal.list({ after: over.runId, limit: 10_000 });
    expect(listed.map(({ runId }) => runId)).toContain(before.runId);
    while ((await journal.purge(100)) > 0);
    await expect(journal.list({ after: over.runId })).rejects.toThrow(RangeError);
  });

  test("a list has pages, and filters by queue and key", async () => {
    const workflow = newRunId();
    const ids: string[] = [];
    for (let i = 0; i < 7; i += 1) {
      const turn = { queue: i < 4 ? "mail" : "default", key: i % 2 ? "odd" : undefined };
      ids.unshift((await running(journal, { workflow, turn })).runId);
      // Runs of one millisecond are listed by their ids.
      await pause(3);
    }
    const pages: string[][] = [];
    for (let after: string | undefined; ; after = pages.at(-1)?.at(-1)) {
      const page = await journal.list({ workflow, limit: 3, after });
      if (page.length === 0) break;
      pages.push(page.map(({ runId }) => runId));
    }
    expect(pages.flat()).toEqual(ids);
    expect(pages.map((page) => page.length)).toEqual([3, 3, 1]);
    const listed = async (query: Parameters<Journal["list"]>[0]) =>
      (await journal.list({ workflow, ...query })).map(({ runId }) => ids.indexOf(runId));
    expect(await listed({ queue: "mail" })).toEqual([3, 4, 5, 6]);
    expect(await listed({ key: "odd" })).toEqual([1, 3, 5]);
    expect(await listed({ key: "odd", queue: "mail", after: ids[3] })).toEqual([5]);
    await expect(journal.list({ after: "no such run" })).rejects.toThrow(RangeError);
  });

  test("runs are listed by workflow and status, the newest first", async () => {
    const workflow = newRunId();
    const runs: (RunKey & { readonly claim: RunClaim })[] = [];
    for (let i = 0; i < 4; i += 1) {
      runs.push(await running(journal, { workflow, owner: `owner ${i}` }));
      await pause(3);
    }
    const [first, second, third] = runs.slice(0, 3) as readonly RunKey[] as [
      RunKey,
      RunKey,
      RunKey,
    ];
    await journal.park(first, { ...FOREVER, reason: "child" });
    await journal.finish(second, { ...DONE, status: "cancelled" });
    await journal.cancel(third.runId);
    const listed = await journal.list({ workflow });
    expect(listed.map(({ runId }) => runId)).toEqual(runs.map(({ runId }) => runId).reverse());
    expect(listed.map(({ status }) => status)).toEqual([
      "running",
      "running",
      "cancelled",
      "parked",
    ]);
    expect(listed[3]).toEqual({
      ...{
        runId: first.runId,
        part: 1,
        workflow,
        version: 1,
        status: "parked",
        epoch: first.epoch,
      },
      ...{ queue: "default", key: undefined, priority: 0 },
      ...{ owner: "owner 0", reason: "child", crashes: 0, cancelled: false, dueAt: undefined },
      ...{ inProgress: [] },
      ...{ startedAt: expect.any(Date), changedAt: expect.any(Date) },
    });
    expect(listed[1]).toMatchObject({ cancelled: true, dueAt: expect.any(Date) });
    expect(await journal.find(first.runId)).toEqual(listed[3]);
    expect(await journal.find("no such run")).toBeUndefined();
    expect(await journal.latest("no such run", "a")).toBeUndefined();
    const run = runs[3] as RunKey;
    for (const key of ["~p/a/", "~p/a/#2", "~p/ab/", "a"]) await journal.append(run, record(key));
    expect((await journal.latest(run.runId, "~p/a/"))?.key).toBe("~p/a/#2");
    expect((await journal.latest(run.runId, "~p/a/#2"))?.key).toBe("~p/a/#2");
    expect(await journal.latest(run.runId, "~p/b")).toBeUndefined();
    const ids = async (query: Parameters<Journal["list"]>[0]) =>
      (await journal.list(query)).map(({ runId }) => runId);
    expect(await ids({ workflow, status: "parked" })).toEqual([first.runId]);
    expect(await ids({ workflow, status: "running", limit: 1 })).toEqual([runs[3]?.runId]);
    expect(await ids({ workflow: "no such workflow" })).toEqual([]);
    expect((await journal.list()).length).toBeGreaterThan(3);
  });
}
