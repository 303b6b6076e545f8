import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { sql } from "../../core/database/sql.ts";
import { sqlJournal } from "../../core/journal/sql.ts";
import { createRuntime, type TxScope, workflow } from "../../core/steps/index.ts";
import { open } from "../../infra/open.ts";

/**
 * Drives a run that stops at the step named `halt` for a moment, and says so, so that it can be frozen there.
 *
 *     node order.ts URL RUN-ID HALT-AT LEASE
 */
const [url = "", id = "", halt = "", lease] = process.argv.slice(2);
const { database, locks, close } = await open(url);
if (!database) throw new Error("it needs a database");

const pauseAt = async (name: string) => {
  if (name !== halt) return;
  process.stdout.write(`${name}\n`);
  await sleep(500);
};
const leave = async ({ tx, runId, key }: TxScope) => {
  await tx.packet([sql`INSERT INTO effect (name) VALUES (${`${runId} ${key}`})`]);
  await pauseAt(key);
};
const order = workflow({ name: "order", version: 1, input: z.object({}) }, async (ctx) => {
  await ctx.step.tx("first", { lock: id }, leave);
  await ctx.step("plain", () => pauseAt("plain"));
  await ctx.step.tx("last", { lock: id }, leave);
  return "done";
});

const runtime = createRuntime({ journal: sqlJournal(database), locks, lease: Number(lease) });
const { status } = await runtime.drive(order, {}, { id });
process.stdout.write(`${status}\n`);
await close();
