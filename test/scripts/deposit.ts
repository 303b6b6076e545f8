import { once } from "node:events";
import { createRuntime } from "../../core/steps/runtime.ts";
import { open } from "../../infra/open.ts";
import { account, hooks } from "../support/account.ts";
import { known } from "../support/known.ts";

/**
 * deposit URL KEY FIRST CALLERS EACH [freeze]: on SIGUSR2, makes EACH deposits of 1 by each of CALLERS callers, who are
 * numbered from FIRST. Prints "one" after each deposit and "done" at the end. With "freeze", prints "frozen" and stops
 * in its first handler, until SIGCONT.
 */
const [url = "", key = "", first = "", callers = "", each = "", freeze] = process.argv.slice(2);
await using store = await open(url);
const runtime = createRuntime({ journal: store.journal, lease: 1_500 });
const mine = runtime.entity(account, key);
if (freeze) {
  hooks.deposit = async () => {
    hooks.deposit = async () => {};
    process.stdout.write("frozen\n");
    process.kill(process.pid, "SIGSTOP");
  };
}
const start = once(process, "SIGUSR2");
const alive = setInterval(() => {}, 1_000);
await mine.state();
process.stdout.write("ready\n");
await start;
await Promise.all(
  Array.from({ length: Number(callers) }, async (_, i) => {
    for (let number = 0; number < Number(each); number += 1) {
      const operationId = `caller ${Number(first) + i}: ${number}`;
      await known(() => mine.call("deposit", 1, { operationId }));
      process.stdout.write("one\n");
    }
  }),
);
process.stdout.write("done\n");
clearInterval(alive);
