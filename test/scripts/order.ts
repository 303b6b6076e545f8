import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { sql } from "../../core/database/sql.ts";
import { createRuntime, type TxScope, workflow } from "../../core/steps/index.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { open } from "../../infra/open.ts";

/**
 * Executes a run, prints the name of the step HALT-AT when it is reached, and freezes there until SIGCONT.
 *
 *     node order.ts URL RUN-ID HALT-AT LEASE
 */
const [url = "", id = "", halt = "", lease] = process.argv.slice(2);
const { database, locks, close } = await open(url);

let isReached = halt === "nowhere";
const freezeAt = async (name: string) => {
  if (name !== halt || isReached) return;
  isReached = true;
  process.stdout.write(`${name}\n`);
  process.kill(process.pid, "SIGSTOP");
};
const insert = async ({ tx, runId, key }: TxScope) => {
  await tx.batch([sql`INSERT INTO effect (name) VALUES (${`${runId} ${key}`})`]);
  await freezeAt(key);
};
const order = workflow({ name: "order", version: 1, input: z.object({}) }, async (ctx) => {
  await ctx.step.tx("first", { lock: id }, insert);
  await ctx.step("plain", () => freezeAt("plain"));
  await ctx.step.tx("last", { lock: id }, insert);
  return "done";
});

const runtime = createRuntime({ journal: sqlJournal(database), locks, lease: Number(lease) });
let outcome = await runtime.execute(order, {}, { id });
// On a busy machine, the process may not have run for longer than the lease.
while (!isReached && (outcome.status === "busy" || outcome.status === "suspended")) {
  await sleep(outcome.status === "busy" ? outcome.retryIn : outcome.wakeIn);
  outcome = await runtime.execute(order, {}, { id });
}
process.stdout.write(`${outcome.status}\n`);
await close();
