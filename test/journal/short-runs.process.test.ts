import { expect, test } from "vitest";
import type { Database, SqlResult } from "../../core/database/sql.ts";
import { StoreUnavailableError, UnknownOutcomeError } from "../../core/lock/errors.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";

type AfterBatch = (results: readonly SqlResult[]) => Promise<readonly SqlResult[]>;

/** A journal in memory, whose next batches `interfere` changes, and the database that it is in. */
async function openJournal(interfere: () => AfterBatch | Error | undefined) {
  const database = sqliteDatabase(":memory:");
  await migrate(database);
  const faulty: Database = {
    address: database.address,
    dialect: database.dialect,
    read: database.read.bind(database),
    transaction: database.transaction.bind(database),
    close: () => database.close(),
    [Symbol.asyncDispose]: () => database.close(),
    async batch(statements, signal, lane) {
      const fault = interfere();
      if (fault instanceof Error) throw fault;
      const results = await database.batch(statements, signal, lane);
      return fault ? fault(results) : results;
    },
  };
  return { journal: sqlJournal(faulty), others: sqlJournal(database) };
}

function aRun(runId: string, input: string) {
  const inputHash = input.repeat(64);
  return { runId, owner: "o", workflow: "w", version: 1, input: `"${input}"`, inputHash };
}

test("a claim of a run that a debounced start gives another input meanwhile takes nothing", async () => {
  const faults: AfterBatch[] = [];
  const { journal, others } = await openJournal(() => faults.shift());
  await others.startKeyed(aRun("first", "a"), { key: "k", quiet: 0 });
  faults.push(async (results) => {
    const renewed = await others.startKeyed(aRun("second", "b"), { key: "k", quiet: 0 });
    expect(renewed).toMatchObject({ runId: "first" });
    return results;
  });
  const claimed = await journal.claim({ ...aRun("first", "a"), ttl: 30_000 });
  expect(claimed).toEqual({ kind: "conflict" });
  expect(await others.find("first")).toMatchObject({ status: "parked" });
});

test("a run whose end was answered too late has ended, or its end is unknown", async () => {
  const faults: (AfterBatch | Error | undefined)[] = [];
  let isDown = false;
  const away = new StoreUnavailableError("sqlite::memory:", "it is away");
  const { journal, others } = await openJournal(
    () => faults.shift() ?? (isDown ? away : undefined),
  );
  const claimed = await journal.claim({ ...aRun("first", "a"), ttl: 30_000 });
  if (claimed.kind !== "claimed") throw new Error(claimed.kind);
  const lost = async () => {
    throw new UnknownOutcomeError("sqlite::memory:", "the end");
  };
  faults.push(lost, undefined);
  isDown = true;
  const run = { runId: "first", epoch: claimed.epoch };
  const request = { status: "completed", value: "1", keep: 60_000 } as const;
  const ending = journal.finish(run, request, AbortSignal.timeout(500));
  await expect(ending).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
  expect(await others.find("first")).toMatchObject({ status: "completed" });
});

test("a claim whose answer was lost has the signal that came before its repetition", async () => {
  const faults: AfterBatch[] = [];
  const { journal, others } = await openJournal(() => faults.shift());
  faults.push(async () => {
    const signal = { name: "paid", payload: "1", dedupeId: "1" };
    await others.signal("first", signal);
    throw new UnknownOutcomeError("sqlite::memory:", "the claim");
  });
  const claimed = await journal.claim({ ...aRun("first", "a"), ttl: 30_000 });
  expect(claimed).toMatchObject({ kind: "claimed", signals: [{ name: "paid" }] });
});

test("a claim of a parked run whose answer was lost has the run's records", async () => {
  const faults: (AfterBatch | undefined)[] = [];
  const { journal, others } = await openJournal(() => faults.shift());
  const first = await others.claim({ ...aRun("first", "a"), ttl: 30_000 });
  if (first.kind !== "claimed") throw new Error(first.kind);
  const run = { runId: "first", epoch: first.epoch };
  const step = { key: "charge", kind: "step", outcome: "ok", attempt: 1, value: "1" } as const;
  await others.append(run, step);
  await others.park(run, { reason: "deadline", wakeIn: 0, signalsSeen: 0 });
  faults.push(undefined, async () => {
    throw new UnknownOutcomeError("sqlite::memory:", "the claim");
  });
  const again = await journal.claim({ ...aRun("first", "a"), ttl: 30_000 });
  expect(again).toMatchObject({ kind: "claimed", records: [{ key: "charge" }] });
});

test("runs with short inputs are started with one statement, and long inputs divide it", async () => {
  const counts: number[] = [];
  const { journal } = await openJournal(() => async (results) => {
    counts.push(results.length);
    return results;
  });
  const start = (length: number) =>
    journal.start(
      Array.from({ length: 100 }, (_, i) => ({
        ...aRun(`run-${length}-${i}`, "a"),
        input: JSON.stringify("a".repeat(length)),
      })),
    );
  await start(1);
  for (const length of [100, 5_000, 50_000]) await start(length);
  const [, short = 0, long, longer] = counts;
  expect([long, longer]).toEqual([short + 33, short + 99]);
});
