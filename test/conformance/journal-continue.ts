import { describe, expect, test } from "vitest";
import type { JournalFixture } from "../support/journal-under-test.ts";
import { expectRejection } from "../support/rejection.ts";
import { claimed, DONE, FOREVER, record, running, STALE, taken } from "../support/runs.ts";
import { until } from "../support/until.ts";

/** Tests of runs that end a history and begin the next one. */
export function describeContinuing({ journal }: JournalFixture): void {
  describe("a continued run", () => {
    const request = { part: 1, input: '"second"', received: [] };

    test("begins an empty history with another input, and keeps the one before", async () => {
      const { claim, ...run } = await running(journal);
      for (const key of ["a", "b"]) await journal.append(run, record(key));
      const large = "x".repeat(20_000);
      await journal.append(run, record("~p/", { value: large }));
      expect(await journal.continueAsNew(run, request)).toBe("continued");
      await expectRejection(journal.append(run, record("late")), STALE);
      // The first input still names the run.
      const second = await claimed(journal, claim);
      expect(second).toMatchObject({ part: 2, input: '"second"', records: [], crashes: 0 });
      const next = { runId: run.runId, epoch: second.epoch };
      await journal.append(next, record("a", { value: '"new"' }));
      expect((await journal.latest(run.runId, "~p/"))?.value === large).toBe(true);
      expect((await journal.latest(run.runId, "a"))?.value).toBe('"new"');
      const before = await journal.show(run.runId, { part: 1 });
      expect(before).toMatchObject({ part: 2, records: [{ key: "a" }, { key: "b" }, {}] });
      expect((await journal.show(run.runId))?.records).toMatchObject([{ value: '"new"' }]);
      // The histories before that are deleted.
      expect(await journal.continueAsNew(next, { ...request, part: 2 })).toBe("continued");
      expect((await journal.show(run.runId, { part: 1 }))?.records).toEqual([]);
      expect((await journal.show(run.runId, { part: 2 }))?.records).toMatchObject([{ key: "a" }]);
      expect(await journal.latest(run.runId, "~p/")).toBeUndefined();
    });

    test("forgets that the process of an earlier history was lost", async () => {
      const { claim, ...first } = await running(journal, { ttl: 30 });
      const run = await taken(journal, first.runId);
      await journal.append(run, record("a"));
      expect(await journal.continueAsNew(run, request)).toBe("continued");
      expect((await claimed(journal, claim)).takenOver).toBe(false);
    });

    test("keeps signals that were not received, and knows the others", async () => {
      const { claim, ...run } = await running(journal);
      const send = (dedupeId: string) =>
        journal.signal(run.runId, { name: "a", dedupeId, payload: `"${dedupeId}"` });
      for (const id of ["1", "2", "3"]) await send(id);
      await journal.continueAsNew(run, { ...request, received: [1, 3] });
      expect(await send("1")).toBe("duplicate");
      expect(await send("4")).toBe("delivered");
      const second = await claimed(journal, claim);
      expect(second.signals.map(({ dedupeId, number }) => [dedupeId, number])).toEqual([
        ["2", 2],
        ["4", 4],
      ]);
      expect(second.signalsSeen).toBe(4);
      const next = { runId: run.runId, epoch: second.epoch };
      await journal.park(next, { ...FOREVER, signalsSeen: second.signalsSeen });
      expect(await journal.find(run.runId)).toMatchObject({ dueAt: undefined });
    });

    test("is not continued by a late holder, which deletes nothing of a new run with its id", async () => {
      const { claim, ...run } = await running(journal);
      await journal.continueAsNew(run, request);
      const { epoch } = await claimed(journal, { ...claim, ttl: 1 });
      const late = { ...run, epoch };
      await journal.finish(await taken(journal, run.runId), { ...DONE, keep: 1 });
      const begun = await until(async () => {
        const answer = await journal.claim(claim);
        return answer.kind === "claimed" && answer;
      });
      expect(begun).toMatchObject({ part: 1, records: [] });
      await journal.append({ ...run, epoch: begun.epoch }, record("new"));
      await journal.signal(run.runId, { name: "a", dedupeId: "1", payload: "1" });
      await expectRejection(journal.continueAsNew(late, { ...request, part: 2 }), STALE);
      const found = await journal.show(run.runId);
      expect(found).toMatchObject({ part: 1, records: [{ key: "new" }], signals: [{}] });
    });

    test("is fenced, continued once, and not continued after a cancellation", async () => {
      const { claim, ...run } = await running(journal);
      const late = { ...run, epoch: run.epoch - 1n };
      await expectRejection(journal.continueAsNew(late, request), STALE);
      await journal.append(run, record("a"));
      await journal.cancel(run.runId);
      expect(await journal.continueAsNew(run, request)).toBe("cancelled");
      expect(await journal.continueAsNew(run, request)).toBe("cancelled");
      const again = await claimed(journal, claim);
      expect(again).toMatchObject({ part: 1, cancelled: true, records: [{ key: "a" }] });
      const other = await running(journal);
      const both = [request, request].map((one) => journal.continueAsNew(other, one));
      expect(await Promise.all(both)).toEqual(["continued", "continued"]);
      expect((await journal.find(other.runId))?.part).toBe(2);
    });
  });
}
