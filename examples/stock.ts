import { openSqlite } from "lockstep/sqlite";

await using shop = await openSqlite("shop.db");
const { inventory } = shop;
await inventory.set({ sku: "cup", quantity: 5, operationId: "count-1" });

const sale = await inventory.decrement({ sku: "cup", quantity: 2, operationId: "order-1" });
console.log(sale.outcome, sale.remaining); // applied 3

const cart = { sku: "cup", quantity: 3, operationId: "cart-1" };
await inventory.reserve({ ...cart, expiresIn: "10m" });
await inventory.confirm({ sku: "cup", reservation: "cart-1", operationId: "paid-1" });

const late = await inventory.decrement({ sku: "cup", quantity: 1, operationId: "order-2" });
console.log(late.outcome); // sold-out
