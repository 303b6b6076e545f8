import { openSqlite } from "lockstep/sqlite";

await using shop = await openSqlite("shop.db");
const { inventory } = shop;
await inventory.set({ sku: "cup", quantity: 5, operationId: "count-1" });

const sale = await inventory.decrement({ sku: "cup", quantity: 2, operationId: "order-1" });
console.log(sale.outcome, sale.remaining); // applied 3

const again = await inventory.decrement({ sku: "cup", quantity: 2, operationId: "order-1" });
console.log(again.outcome, again.remaining, again.replayed); // applied 3 true

const late = await inventory.decrement({ sku: "cup", quantity: 4, operationId: "order-2" });
console.log(late.outcome); // sold-out
