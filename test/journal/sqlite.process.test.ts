import { expect, test } from "vitest";
import { type Database, sql } from "../../core/database/sql.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { describeJournal } from "../conformance/journal.ts";
import { describeTransactions } from "../conformance/transactions.ts";
import { sqliteJournalUnderTest } from "../support/journal-under-test.ts";
import { DONE, record, running } from "../support/runs.ts";

describeJournal("sqlite", sqliteJournalUnderTest);
describeTransactions("sqlite", sqliteJournalUnderTest);

test("a purge of long histories deletes at most 5,000 records in one transaction", async () => {
  const underTest = await sqliteJournalUnderTest();
  const database = underTest.openDatabase?.() as Database;
  const journal = sqlJournal(database);
  for (let i = 0; i < 4; i += 1) {
    const run = await running(journal);
    await journal.append(run, record("first"));
    await database.batch([
      sql`
        INSERT INTO lockstep_step (run_id, part, step_key, epoch, kind, outcome, attempt, at)
        WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1999)
        SELECT run_id, part, 'step ' || n, epoch, kind, outcome, attempt, at + n
        FROM lockstep_step, numbers WHERE run_id = ${run.runId} AND step_key = 'first'`,
    ]);
    await journal.finish(run, { ...DONE, keep: 0 });
  }
  const count = async () => {
    const [row] = await database.read(sql`SELECT COUNT(*) AS records FROM lockstep_step`);
    return Number(row?.records);
  };
  const deleted: number[] = [];
  const transaction = database.transaction.bind(database);
  database.transaction = async (...args) => {
    const before = await count();
    const result = await transaction(...args);
    deleted.push(before - (await count()));
    return result;
  };
  expect(await journal.purge(100)).toBe(4);
  expect(deleted.filter((records) => records > 0)).toEqual([4_000, 4_000]);
  await database.close();
  await underTest.close();
});
