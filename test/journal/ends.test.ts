import { expect, test } from "vitest";
import { injectFaults } from "../../core/steps/testing.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import { DONE, FOREVER, running } from "../support/runs.ts";

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
  expect(signals.map(({ number }) => number)).toEqual(signals.map((_, i) => i + 1));
  await database.close();
});

test("ends with long values share a transaction, and are told in several statements", async () => {
  const database = sqliteDatabase(":memory:");
  await migrate(database);
  const journal = sqlJournal(database);
  const { claim: _, ...parent } = await running(journal);
  const signal = { runId: parent.runId, signal: "child" };
  const children = await Promise.all(
    Array.from({ length: 9 }, () => running(journal, { parent: signal })),
  );
  await journal.park(parent, { ...FOREVER, children: { count: 9, within: 60_000 } });
  const value = (n: number) => `"${n}${"x".repeat(7_000)}"`;
  await Promise.all(
    children.map(({ claim, ...run }, n) =>
      journal.finish(run, { ...DONE, value: value(n), parent: parent.runId }),
    ),
  );
  const shown = await journal.show(parent.runId);
  const { signals = [] } = shown ?? {};
  const told = new Map(signals.map((one) => [one.dedupeId, JSON.parse(one.payload).value]));
  expect(told).toEqual(new Map(children.map(({ runId }, n) => [runId, value(n)])));
  expect(signals.map(({ number }) => number)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);
  // The last end makes the parent due.
  expect(shown?.dueAt?.getTime()).toBeLessThanOrEqual(shown?.now.getTime() ?? 0);
  await database.close();
});
