import { claimFence } from "../database/claim.ts";
import { asNumber, type Database } from "../database/sql.ts";
import type { Fence } from "../lock/fence.ts";
import { inventoryOn } from "./backend.ts";
import type { Inventory, Stock } from "./inventory.ts";
import { apply, readStock } from "./sql/apply.ts";
import { applyMany } from "./sql/batch.ts";
import { expireReservations } from "./sql/expiry.ts";
import { history } from "./sql/history.ts";

/** Stock in the tables of a MySQL, MariaDB or SQLite database. Who opened the database closes it. */
export function sqlInventory(database: Database): Inventory {
  const place = { database, claimed: new WeakSet<Fence>() };
  return inventoryOn({
    address: database.address,
    get: (sku) => get(database, sku),
    apply: (operation, signal) => apply(place, operation, signal),
    applyMany: (batch, signal) => applyMany(database, batch, signal),
    expire: (sku) => expireReservations(database, sku),
    history: (sku, page) => history(database, sku, page),
    claim: (fence) => claim(database, fence),
  });
}

async function get(database: Database, sku: string): Promise<Stock | undefined> {
  const [row] = await database.read(readStock(sku));
  if (row === undefined) return undefined;
  return {
    sku,
    onHand: asNumber(row.on_hand),
    reserved: asNumber(row.reserved),
    sold: asNumber(row.sold),
    supplied: asNumber(row.supplied),
  };
}

async function claim(database: Database, fence: Fence): Promise<void> {
  await database.transaction(async (tx) => {
    await claimFence(database, tx, fence);
    await tx.commit([]);
  });
}
