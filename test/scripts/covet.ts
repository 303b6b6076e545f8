import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { open } from "../../infra/open.ts";

/**
 * covet URL LOCK RUN: from SIGUSR2 on tries again and again to take the lock and the run, and prints what it gets, with
 * the time. It gives the lock back.
 */
const [url = "", name = "", runId = ""] = process.argv.slice(2);
const { journal, locks } = await open(url);
if (!journal) throw new Error(`${url} has no journal`);
setInterval(() => {}, 1_000);
const told = once(process, "SIGUSR2");
process.stdout.write("ready\n");
await told;
for (;;) {
  const take = { runId, owner: "covetous", ttl: 60_000 };
  const answers = await Promise.allSettled([
    locks.tryLock(name, { ttl: 60_000 }),
    journal.take(take),
  ]);
  const [lock, run] = answers.map((one) => (one.status === "fulfilled" ? one.value : undefined));
  if (run && "kind" in run && run.kind === "claimed") process.stdout.write(`run ${Date.now()}\n`);
  if (lock && "unlock" in lock) {
    process.stdout.write(`lock ${Date.now()}\n`);
    await lock.unlock();
  }
  await sleep(5);
}
