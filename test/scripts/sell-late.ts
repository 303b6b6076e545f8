import { stockLock } from "../../core/inventory/inventory.ts";
import { open } from "../../infra/open.ts";
import { pause } from "../support/until.ts";

/** sell-late URL SKU: takes the sku's lock, prints a line, stops itself, and sells under its fence after SIGCONT. */
const [url = "", sku = ""] = process.argv.slice(2);
const { locks, inventory, close } = await open(url);
const { fence } = await locks.lock(stockLock(sku), { ttl: 3_000, wait: 10_000 });
process.stdout.write("locked\n");
process.kill(process.pid, "SIGSTOP");
// The signal takes effect when the process next enters the kernel.
await pause(1);
const answer = await inventory.decrement({ sku, quantity: 1, operationId: "late", fence }).then(
  ({ outcome }) => outcome,
  ({ code }) => code,
);
process.stdout.write(`${answer}\n`);
await close();
