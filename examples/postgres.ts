import { openPostgres } from "lockstep/postgres";

await using shop = await openPostgres({
  host: "127.0.0.1",
  port: 5432,
  user: "shop",
  database: "shop",
});
const { inventory, locks } = shop;

await locks.withLock("nightly-report", { ttl: "10s", wait: "5s" }, async (lock) => {
  lock.assertHeld(); // before every effect outside
});

await inventory.set({ sku: "plate", quantity: 5, operationId: "count-of-plates" });
const sale = await inventory.decrement({ sku: "plate", quantity: 2, operationId: "order-9" });
console.log(sale.outcome, sale.remaining); // applied 3
