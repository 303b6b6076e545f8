import { expect, test } from "vitest";
import { injectFaults } from "../../core/steps/testing.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import { DONE, running } from "../support/runs.ts";

test("children that end at the same time share a transaction, and each gets its own answer", async () => {
  let batches = 0;
  const database = injectFaults(sqliteDatabase(":memory:"), (point) => {
    if (point === "batch:before") batches += 1;
  });
  await migrate(database);
  const journal = sqlJournal(database);
  const { runId } = await running(journal);
  const parent = { runId, signal: "child" };
  const children = await Promise.all(
    Array.from({ length: 20 }, () => running(journal, { parent })),
  );
  const [first, cancelled, lost, ...others] = children.map(({ claim: _, ...run }) => run);
  if (!first || !cancelled || !lost) throw new Error("no children");
  await journal.cancel(cancelled.runId);
  batches = 0;
  const late = { ...lost, epoch: lost.epoch - 1n };
  const ends = [first, cancelled, late, ...others].map((run) =>
    journal.finish(run, { ...DONE, parent: runId }),
  );
  const answers = await Promise.allSettled(ends);
  expect(answers).toMatchObject([
    { value: "ended" },
    { value: "cancelled" },
    { reason: { code: "STALE_RUN" } },
    ...others.map(() => ({ value: "ended" })),
  ]);
  // The first end does not wait for others.
  expect(batches).toBe(2);
  const { signals = [] } = (await journal.show(runId)) ?? {};
  expect(signals.map(({ dedupeId }) => dedupeId).toSorted()).toEqual(
    [first, ...others].map((run) => run.runId).toSorted(),
  );
  await database.close();
});
