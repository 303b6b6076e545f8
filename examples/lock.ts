import { stockLock } from "lockstep/inventory";
import { openSqlite } from "lockstep/sqlite";

await using shop = await openSqlite("shop.db");
await shop.inventory.set({ sku: "teapot", quantity: 10, operationId: "count-1" });

const sale = { sku: "teapot", quantity: 1, operationId: "order-7" };
const options = { ttl: "10s", wait: "5s" } as const;
const answer = await shop.locks.withLock(stockLock("teapot"), options, ({ fence }) =>
  shop.inventory.decrement({ ...sale, fence }),
);
console.log(answer); // { outcome: 'applied', remaining: 9, replayed: false }
