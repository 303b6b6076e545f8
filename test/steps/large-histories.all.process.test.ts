import { expect, test } from "vitest";
import { createRuntime } from "../../core/steps/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import { flow, resume, untilResumed } from "../support/flow.ts";
import { largeResults, manySteps, recordHistory } from "../support/long-histories.ts";
import { runNode } from "../support/script.ts";
import { temporaryFile } from "../support/under-test.ts";

/** In megabytes. The large results have 200 together. */
const HEAP = 96;

test.each([
  { what: "200 steps with results of 1 MB", recorded: largeResults, output: 200_000_000 },
  { what: "10,000 steps", recorded: manySteps, output: 10_000 },
])("a process with a small heap resumes a run of $what", async ({ recorded, output }) => {
  const { file, remove } = await temporaryFile();
  await recordHistory(recorded, file);
  const script = new URL("../scripts/replay-history.ts", import.meta.url).pathname;
  using resumed = runNode([`--max-old-space-size=${HEAP}`, script, file, recorded.name]);
  const replayed = JSON.parse(await resumed.line());
  expect(replayed).toMatchObject({ output });
  // A replay whose work grew with the square of the records would take minutes.
  expect(replayed.millis).toBeLessThan(60_000);
  expect(await resumed.ended).toBe(0);
  await remove();
});

test("more records than a page holds are replayed in their order", async () => {
  const { file, remove } = await temporaryFile();
  const database = sqliteDatabase(file);
  await migrate(database);
  const bodies: number[][] = [];
  const wf = flow(async (ctx) => {
    const order: number[] = [];
    bodies.push(order);
    const branch = async (_: unknown, number: number) => {
      for (let i = 0; i < 51; i += 1) {
        await ctx.random();
        order.push(number);
      }
    };
    await Promise.all(Array.from({ length: 20 }, branch));
    await untilResumed(ctx);
  });
  const journal = sqlJournal(database);
  await createRuntime({ journal, inlineWait: 0 }).execute(wf, { n: 1 }, { id: "r" });
  await resume(createRuntime({ journal }), "r");
  const ended = await createRuntime({ journal }).run(wf, { n: 1 }, { id: "r" });
  expect(ended.status).toBe("completed");
  expect(bodies).toEqual([bodies[0], bodies[0]]);
  await database.close();
  await remove();
});

test("a replay reads pages of records, and large results in batches of 4 MB", async () => {
  const journal = memoryJournal();
  const calls: string[] = [];
  const counting = {
    ...journal,
    records: (...args: Parameters<typeof journal.records>) => {
      calls.push("records");
      return journal.records(...args);
    },
    values: (...args: Parameters<typeof journal.values>) => {
      calls.push("values");
      return journal.values(...args);
    },
  };
  const wf = flow(async (ctx) => {
    for (let i = 0; i < 2_400; i += 1) await ctx.random();
    for (let i = 0; i < 12; i += 1) await ctx.step("large", async () => "x".repeat(1_000_000));
    await untilResumed(ctx);
  });
  await createRuntime({ journal, inlineWait: 0 }).execute(wf, { n: 1 }, { id: "r" });
  expect(calls).toEqual([]);
  await resume(createRuntime({ journal }), "r");
  const ended = await createRuntime({ journal: counting }).run(wf, { n: 1 }, { id: "r" });
  expect(ended.status).toBe("completed");
  // The first page comes with the claim, and the signal makes no page of its own.
  expect(calls).toEqual(["records", "records", "values", "values", "values"]);
});
