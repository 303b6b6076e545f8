import { z } from "zod";
import { sql } from "../../core/database/sql.ts";
import { createRuntime, workflow } from "../../core/steps/index.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";

const about = { version: 1, input: z.object({}), signals: { go: z.object({}) } };

/** Has 200 steps with a result of 1 MB each. */
export const largeResults = workflow({ name: "large-results", ...about }, async (ctx) => {
  let sum = 0;
  for (let i = 0; i < 200; i += 1) {
    const result = await ctx.step("large", async () => "x".repeat(1_000_000));
    sum += result.length;
  }
  await ctx.waitFor("go");
  return sum;
});

/** Has 10,000 steps with a number each. */
export const manySteps = workflow({ name: "many-steps", ...about }, async (ctx) => {
  let sum = 0;
  for (let i = 0; i < 10_000; i += 1) sum += await ctx.step("one", async () => 1);
  await ctx.waitFor("go");
  return sum;
});

export const LONG_HISTORIES = [largeResults, manySteps];

/** Executes the workflow in a new SQLite file until only its replay is left. The run's id is the workflow's name. */
export async function recordHistory(
  recorded: (typeof LONG_HISTORIES)[number],
  file: string,
): Promise<void> {
  const database = sqliteDatabase(file);
  await migrate(database);
  // The file need not survive a crash of the machine.
  await database.batch([sql`PRAGMA synchronous = OFF`]);
  const runtime = createRuntime({ journal: sqlJournal(database) });
  const id = recorded.name;
  const { status } = await runtime.execute(recorded, {}, { id });
  if (status !== "suspended") throw new Error(`the run is ${status}`);
  await runtime.signal(id, "go", {}, { dedupeId: "1" });
  await database.close();
}
