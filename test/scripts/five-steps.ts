import { z } from "zod";
import { type Database, sql } from "../../core/database/sql.ts";
import { sqlJournal } from "../../core/journal/sql.ts";
import { createRuntime, type TxScope, workflow } from "../../core/steps/index.ts";
import { pointed } from "../../core/steps/points.ts";
import { mysqlStore, openMysql } from "../../core/stores/mysql/index.ts";
import { openSqlite, sqliteStore } from "../../core/stores/sqlite/index.ts";

/** So short that whoever goes on with a run need not wait for long, and too long to be renewed. */
const LEASE = 1_000;

const Input = z.object({ fails: z.boolean() });

const leave = async ({ tx, runId, key }: TxScope) => {
  await tx.packet([sql`INSERT INTO effect (name) VALUES (${`${runId} ${key}`})`]);
};

/** One step of each kind. */
const fiveSteps = workflow({ name: "five", version: 1, input: Input }, async (ctx, input) => {
  const lock = { names: ctx.runId, ttl: LEASE };
  await ctx.step.tx("tx", { lock }, leave);
  await ctx.step("plain", async () => "done");
  await ctx.sleep("nap", 1);
  await ctx.step.map("map", ["a", "b"], { keyOf: String }, async (item) => item);
  await ctx.step.tx("undone", { lock }, leave, (_, scope) => leave(scope));
  if (input.fails) throw new Error("after all");
});

function openDatabase(url: string): Database {
  if (url.startsWith("sqlite:")) return openSqlite(url.slice("sqlite:".length));
  const { hostname: host, port, username: user, pathname } = new URL(url);
  return openMysql({ host, port: Number(port), user, database: pathname.slice(1) });
}

/** Carries a run over this database; counts the calls that reach it, and is killed at the call's end or beginning. */
export async function carry(url: string, runId: string, fails: boolean, killAt: number) {
  let points = 0;
  const database = pointed(openDatabase(url), () => {
    points += 1;
    if (points === killAt) process.kill(process.pid, "SIGKILL");
  });
  const store = url.startsWith("sqlite:") ? sqliteStore : mysqlStore;
  const locks = store(database, { closeDatabase: true });
  const runtime = createRuntime({ journal: sqlJournal(database), locks, lease: LEASE });
  const outcome = await runtime.run(fiveSteps, { fails }, { id: runId });
  await locks.close();
  return { points, outcome };
}

if (import.meta.main) {
  const [url = "", runId = "", fails = "", killAt = "0"] = process.argv.slice(2);
  const { points } = await carry(url, runId, fails === "fails", Number(killAt));
  process.stdout.write(`${points}\n`);
}
