import { claimFence } from "../database/claim.ts";
import { asNumber, type Database, type Transaction } from "../database/sql.ts";
import type { Fence } from "../lock/fence.ts";
import { changesOn, inventoryOn } from "./backend.ts";
import type { Inventory, Stock } from "./inventory.ts";
import { apply, readStock } from "./sql/apply.ts";
import { applyMany } from "./sql/batch.ts";
import { expireReservations } from "./sql/expiry.ts";
import { history } from "./sql/history.ts";
import { applyManyWithin, applyWithin, type Inside, inside } from "./sql/within.ts";

export interface SqlInventory extends Inventory {
  /**
   * The same changes as a part of the caller's transaction: they are committed with it or not at all. A replay
   * is recognised as ever.
   *
   * The fence is claimed before anything is read, and kept by the transaction. A DuplicateKeyError says that the
   * operation id has just been used for another sku; like every failure it ends the transaction.
   */
  within(tx: Pick<Transaction, "packet">): InventoryWithin;
}

/** The signal of a change counts for nothing here: the transaction has its own. */
export type InventoryWithin = Omit<Inventory, "expire" | "history" | "claim">;

/** Stock in the tables of a MySQL, MariaDB or SQLite database. Who opened the database closes it. */
export function sqlInventory(database: Database): SqlInventory {
  const claimed = new WeakSet<Fence>();
  const inventory = inventoryOn({
    address: database.address,
    get: (sku) => get(database, sku),
    apply: (operation, signal) => apply(database, claimed, operation, signal),
    applyMany: (batch, signal) => applyMany(database, batch, signal),
    expire: (sku) => expireReservations(database, sku),
    history: (sku, page) => history(database, sku, page),
    claim: (fence) => claim(database, fence),
  });
  return { ...inventory, within: (tx) => within(inside(database.dialect, tx)) };
}

function within(tx: Inside): InventoryWithin {
  return changesOn({
    get: (sku) => get(tx, sku),
    apply: (operation) => applyWithin(tx, operation),
    applyMany: (batch) => applyManyWithin(tx, batch),
  });
}

async function get(database: Pick<Database, "read">, sku: string): Promise<Stock | undefined> {
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
