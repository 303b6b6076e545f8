import { describe, expect, test } from "vitest";
import type { JournalFixture } from "../support/journal-under-test.ts";
import { claimed, claimOf, newRunId } from "../support/runs.ts";

/** Tests of starts that share a run. */
export function describeKeyedStarts({ journal }: JournalFixture): void {
  const newRun = () => claimOf(newRunId());

  describe("a keyed start", () => {
    test("does not debounce into a cancelled run", async () => {
      const start = { key: newRunId(), quiet: 600_000 };
      const [first, second, third] = [newRun(), newRun(), newRun()];
      const begun = await journal.startKeyed(first, start);
      expect(begun).toMatchObject({ runId: first.runId, cancelled: false });
      await journal.cancel(first.runId);
      const next = await journal.startKeyed(second, start);
      expect(next).toMatchObject({ runId: second.runId, reason: "debounce", cancelled: false });
      expect(await journal.startKeyed(third, start)).toMatchObject({ runId: second.runId });
      expect((await claimed(journal, first)).cancelled).toBe(true);
    });

    test("tells that the open run of a singleton was cancelled", async () => {
      const start = { key: newRunId() };
      const first = newRun();
      await journal.startKeyed(first, start);
      await journal.cancel(first.runId);
      const again = await journal.startKeyed(newRun(), start);
      expect(again).toMatchObject({ runId: first.runId, kind: "parked", cancelled: true });
    });

    test("that is repeated answers the run that it has created, which it does not change", async () => {
      const key = newRunId();
      for (const start of [{ key }, { key, quiet: 0 }]) {
        const run = newRun();
        await journal.startKeyed(run, start);
        await claimed(journal, run);
        const again = await journal.startKeyed(run, start);
        expect(again).toMatchObject({ runId: run.runId, kind: "busy" });
        expect(await journal.find(run.runId)).toMatchObject({ status: "running" });
      }
    });
  });
}
