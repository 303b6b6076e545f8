import { z } from "zod";
import { type Database, sql } from "../../core/database/sql.ts";
import { createRuntime, type TxScope, workflow } from "../../core/steps/index.ts";
import { injectFaults } from "../../core/steps/testing.ts";
import { mysqlDatabase } from "../../core/stores/mysql/database.ts";
import { postgresDatabase } from "../../core/stores/postgres/database.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { sqlLocks } from "../../core/stores/sql/locks.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";

/** Short for the process that resumes the run, and too long for a renewal. */
const LEASE = 3_000;

/** How a run goes. `continues`: with `continueAsNew`, in two histories. */
export type Course = "completes" | "is undone" | "continues";

const Input = z.object({ fails: z.boolean() });

const insert = async ({ tx, runId, key }: TxScope) => {
  await tx.batch([sql`INSERT INTO effect (name) VALUES (${`${runId} ${key}`})`]);
};

/** One step of each kind. */
const fiveSteps = workflow({ name: "five", version: 1, input: Input }, async (ctx, input) => {
  const lock = { names: ctx.runId, ttl: LEASE };
  await ctx.step.tx("tx", { lock }, insert);
  await ctx.step(
    "plain",
    async () => "done",
    async () => {},
  );
  await ctx.sleep("nap", 1);
  await ctx.step.map("map", ["a", "b"], { keyOf: String }, async (item) => item);
  await ctx.step.tx("undone", { lock }, insert, (_, scope) => insert(scope));
  if (input.fails) throw new Error("after all");
});

const twoHistories = workflow(
  { name: "two", version: 1, input: z.object({ history: z.number() }) },
  async (ctx, { history }) => {
    await ctx.step.tx(`tx${history}`, { lock: { names: ctx.runId, ttl: LEASE } }, insert);
    if (history === 1) await ctx.continueAsNew({ history: 2 });
  },
);

function openDatabase(url: string): Database {
  if (url.startsWith("sqlite:")) return sqliteDatabase(url.slice("sqlite:".length));
  const { protocol, hostname: host, port, username: user, pathname } = new URL(url);
  const openIt = protocol === "postgres:" ? postgresDatabase : mysqlDatabase;
  return openIt({ host, port: Number(port), user, database: pathname.slice(1) });
}

/** Executes a run and counts the points before and after each database call. Kills the process at the given point. */
export async function executeCourse(url: string, runId: string, course: Course, killAt: number) {
  let points = 0;
  const database = injectFaults(openDatabase(url), () => {
    points += 1;
    if (points === killAt) process.kill(process.pid, "SIGKILL");
  });
  const locks = sqlLocks(database, { closeDatabase: true });
  const runtime = createRuntime({ journal: sqlJournal(database), locks, lease: LEASE });
  const id = { id: runId };
  const outcome =
    course === "continues"
      ? await runtime.run(twoHistories, { history: 1 }, id)
      : await runtime.run(fiveSteps, { fails: course === "is undone" }, id);
  await locks.close();
  return { points, outcome };
}

if (import.meta.main) {
  const [url = "", runId = "", course = "completes", killAt = "0"] = process.argv.slice(2);
  const { points } = await executeCourse(url, runId, course as Course, Number(killAt));
  process.stdout.write(`${points}\n`);
}
