import { openMysql } from "lockstep/mysql";

await using shop = await openMysql({
  host: "127.0.0.1",
  port: 3306,
  user: "root",
  database: "shop",
});
const { inventory, locks } = shop;

await locks.withLock("nightly-report", { ttl: "10s", wait: "5s" }, async (lock) => {
  lock.assertHeld(); // before every effect outside
});

await inventory.set({ sku: "plate", quantity: 5, operationId: "count-of-plates" });
const sale = await inventory.decrement({ sku: "plate", quantity: 2, operationId: "order-9" });
console.log(sale.outcome, sale.remaining); // applied 3
