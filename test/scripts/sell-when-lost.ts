import { once } from "node:events";
import { stockLock } from "../../core/inventory/inventory.ts";
import { incidentTelemetry } from "../../functions/telemetry/incidents.ts";
import { type AnyStore, open } from "../../infra/open.ts";

/** sell-when-lost URL SKU: takes the sku's lock, prints its fence, waits until the lock is lost, sells under its fence all the same, and prints the outcome. Leaves its incidents. */
const [url = "", sku = ""] = process.argv.slice(2);
const incidents = incidentTelemetry(() => store.locks);
const observers = { onEvent: incidents.lock, onStockEvent: incidents.stock };
const store: AnyStore = await open(url, observers);
const { locks, inventory, close } = store;
const { fence, signal } = await locks.lock(stockLock(sku), { ttl: 2_000, wait: 60_000 });
process.stdout.write(`${fence}\n`);
// A listener keeps no process alive.
const alive = setInterval(() => {}, 1_000);
await once(signal, "abort");
clearInterval(alive);
const answer = await inventory.decrement({ sku, quantity: 1, operationId: "late", fence }).then(
  ({ outcome }) => outcome,
  ({ code }) => code,
);
process.stdout.write(`${answer}\n`);
await close();
