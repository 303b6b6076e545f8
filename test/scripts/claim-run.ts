import { once } from "node:events";
import { sql } from "../../core/database/sql.ts";
import type { RunKey } from "../../core/journal/runs.ts";
import { open } from "../../infra/open.ts";
import { claimOf, DONE, mine, record } from "../support/runs.ts";

/**
 * claim-run URL RUN TTL: on SIGUSR2 claims the run seven times at once and prints the results. If it got the run, it
 * tries each kind of write on the next SIGUSR2 and prints the results.
 */
const [url = "", runId = "", ttl = ""] = process.argv.slice(2);
const { journal } = await open(url);
const { transact } = journal;
setInterval(() => {}, 1_000);
await journal.show(runId);
const toldOnce = once(process, "SIGUSR2");
process.stdout.write("ready\n");
await toldOnce;
const claim = claimOf(runId, { ttl: Number(ttl), owner: `process ${process.pid}` });
const answers = await Promise.all(Array.from({ length: 7 }, () => journal.claim(claim)));
const claimed = answers.find(({ kind }) => kind === "claimed");
if (claimed) {
  const run: RunKey = { runId, epoch: mine(claimed).epoch };
  await journal.append(run, record("before"));
  const toldAgain = once(process, "SIGUSR2");
  process.stdout.write(`${JSON.stringify(answers.map(({ kind }) => kind))}\n`);
  await toldAgain;
  const signalsSeen = 0;
  const outcomes = {
    append: await codeOf(journal.append(run, record("late"))),
    ...(transact && {
      transact: await codeOf(
        transact(run, { key: "late tx", fences: [] }, async (tx) => {
          await tx.batch([sql`DELETE FROM lockstep_step WHERE run_id = ${runId}`]);
          return record("late tx", { kind: "tx" });
        }),
      ),
    }),
    renew: String(await journal.renew(run, 20_000)),
    park: await codeOf(journal.park(run, { reason: "sleep", wakeIn: 0, signalsSeen })),
    finish: await codeOf(journal.finish(run, DONE)),
  };
  process.stdout.write(`${JSON.stringify(outcomes)}\n`);
} else {
  process.stdout.write(`${JSON.stringify(answers.map(({ kind }) => kind))}\n`);
}

function codeOf(call: Promise<unknown>): Promise<string> {
  return call.then(
    () => "done",
    (error: { readonly code?: string }) => error.code ?? String(error),
  );
}
