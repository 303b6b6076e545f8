import { sql } from "lockstep/database";
import { openPostgres } from "lockstep/postgres";

await using shop = await openPostgres({
  host: "127.0.0.1",
  port: 5432,
  user: "shop",
  database: "shop",
});
const { database, inventory } = shop;
await inventory.set({ sku: "cup", quantity: 5, operationId: "count-of-cups" });

/** Sells units and writes the order's row: both, or neither. */
function buy(order: string, sku: string, quantity: number) {
  return database.transaction(async (tx) => {
    const change = { sku, quantity, operationId: order };
    const { outcome, replayed } = await inventory.within(tx).decrement(change);
    if (outcome === "applied" && !replayed) {
      await tx.commit([
        sql`INSERT INTO purchase (id, sku, quantity) VALUES (${order}, ${sku}, ${quantity})`,
      ]);
    }
    return outcome; // without a commit, nothing has changed
  });
}

console.log(await buy("order-7", "cup", 2)); // applied
console.log(await buy("order-7", "cup", 2)); // applied
console.log(await buy("order-8", "cup", 9)); // sold-out
console.log((await inventory.get("cup"))?.onHand); // 3
