import { describe, expect, test } from "vitest";
import type { JournalFixture } from "../support/journal-under-test.ts";
import { expectRejection } from "../support/rejection.ts";
import { claimed, DONE, record, running, STALE, taken } from "../support/runs.ts";

/** Tests of runs that have ended and go on. */
export function describeReopening({ journal, underTest }: JournalFixture): void {
  describe("a reopened run", () => {
    const ended = { ...DONE, status: "failed", compensated: "no" } as const;

    test("is due in a new epoch, and keeps the superseded records in their places", async () => {
      const { claim, ...run } = await running(journal);
      for (const key of ["a", "b", "c"]) await journal.append(run, record(key));
      await journal.cancel(run.runId);
      await journal.finish(run, ended);
      const request = { supersede: ["b", "missing"], isRetry: true };
      expect(await journal.reopen(run, request)).toBe(true);
      expect(await journal.reopen(run, request)).toBe(false);
      const shown = await journal.show(run.runId);
      expect(shown).toMatchObject({ status: "parked", ending: undefined, cancelled: false });
      await expectRejection(journal.append(run, record("late")), STALE);
      const next = await claimed(journal, claim);
      expect(next.epoch).toBeGreaterThan(run.epoch);
      expect(next.records.map(({ key }) => key)).toEqual(["a", `~old/${run.epoch}/b`, "c"]);
      const again = { runId: run.runId, epoch: next.epoch };
      expect(await journal.append(again, record("b", { value: '"new"' }))).toMatchObject({
        value: '"new"',
      });
      await journal.finish(again, ended);
      expect((await journal.take(claim)).kind).toBe("ended");
    });

    test("was taken over from a lost process as long as nobody has written a record since", async () => {
      for (const hasWritten of [false, true]) {
        const { claim, ...first } = await running(journal, { ttl: 30 });
        const run = await taken(journal, first.runId);
        if (hasWritten) await journal.append(run, record("a"));
        await journal.finish(run, ended);
        expect(await journal.reopen(run, { supersede: [], isRetry: true })).toBe(true);
        expect((await claimed(journal, claim)).takenOver).toBe(!hasWritten);
      }
    });

    test("stays cancelled when only its undos are retried", async () => {
      const { claim, ...run } = await running(journal);
      await journal.cancel(run.runId);
      await journal.finish(run, { ...ended, status: "cancelled" });
      expect(await journal.reopen(run, { supersede: [], isRetry: false })).toBe(true);
      expect(await claimed(journal, claim)).toMatchObject({ cancelled: true });
    });

    test("stays cancelled when it was blocked", async () => {
      const { claim, ...run } = await running(journal);
      await journal.block(run, { error: '"why"', blocks: 1, retryIn: 600_000 });
      await journal.cancel(run.runId);
      expect(await journal.reopen(run, { supersede: [], isRetry: true })).toBe(true);
      expect(await claimed(journal, claim)).toMatchObject({ cancelled: true });
    });

    test("was ended or blocked: an open run is left alone", async () => {
      const { claim, ...run } = await running(journal);
      const request = { supersede: [], isRetry: true };
      expect(await journal.reopen(run, request)).toBe(false);
      await journal.block(run, { error: '"why"', blocks: 4, retryIn: 600_000 });
      expect(await journal.reopen(run, request)).toBe(true);
      expect(await claimed(journal, claim)).toMatchObject({ blocks: 0, crashes: 0 });
    });

    test("may supersede more records than one statement names", async ({ skip }) => {
      skip(underTest.slowness !== undefined, underTest.slowness);
      const { claim, ...run } = await running(journal);
      const keys = Array.from({ length: 501 }, (_, i) => `s${i}`);
      for (const key of keys) await journal.append(run, record(key));
      await journal.finish(run, ended);
      expect(await journal.reopen(run, { supersede: keys, isRetry: true })).toBe(true);
      const { records } = await claimed(journal, claim);
      expect(records.map(({ key }) => key)).toEqual(keys.map((key) => `~old/${run.epoch}/${key}`));
    });
  });
}
