import { claimFence } from "../../core/database/claim.ts";
import type { Database, Transaction } from "../../core/database/sql.ts";
import { InventoryError } from "../../core/inventory/inventory.ts";
import type { Fence } from "../../core/lock/fence.ts";
import type { TransactionalInventory } from "../../core/stores/transactional-inventory.ts";
import { answerOrders, type OrderStatus, openOrders, type StockOrder } from "./orders.ts";

export interface GroupOptions {
  /** The database of the orders and of the stock. */
  readonly database: Database;
  readonly inventory: TransactionalInventory;

  /** The most orders per transaction. */
  readonly group: number;

  /** Stops at once: running transactions are rolled back. */
  readonly abort?: AbortSignal;
}

/** The status of orders, by order id. */
export type Answers = ReadonlyMap<string, OrderStatus>;

/** Fulfils the oldest open orders for a sku in one transaction, under the fence of the sku's lock. */
export async function answerGroup(
  options: GroupOptions,
  sku: string,
  fence: Fence,
): Promise<Answers> {
  try {
    return await transact(options, sku, fence, async (tx, orders) => {
      const wanted = orders.map(({ orderId, quantity }) => ({ operationId: orderId, quantity }));
      const inventory = options.inventory.within(tx);
      const answers = await inventory.decrementMany({ sku, fence, orders: wanted });
      return new Map(answers.map(({ operationId, outcome }) => [operationId, ANSWERS[outcome]]));
    });
  } catch (error) {
    if (!isUnknownSku(error)) throw error;
    return transact(options, sku, fence, async (tx, orders) => {
      // The sku may have been made meanwhile: the next poll serves its orders.
      if (await options.inventory.within(tx).get(sku)) return new Map();
      return new Map(orders.map(({ orderId }) => [orderId, "unknown-sku"]));
    });
  }
}

function isUnknownSku(error: unknown): boolean {
  return error instanceof InventoryError && error.code === "UNKNOWN_SKU";
}

/** Claims the fence, reads the open orders, and commits their status with the changes of `decide`. */
function transact(
  { database, group, abort }: GroupOptions,
  sku: string,
  fence: Fence,
  decide: (tx: Transaction, orders: readonly StockOrder[]) => Promise<Answers>,
): Promise<Answers> {
  return database.transaction(async (tx): Promise<Answers> => {
    await claimFence(database, tx, fence);
    const orders = await openOrders(tx, sku, group);
    if (orders.length === 0) return new Map();
    const answers = await decide(tx, orders);
    await tx.commit(answerOrders(database, answers));
    return answers;
  }, abort);
}

const ANSWERS = {
  applied: "fulfilled",
  "sold-out": "sold-out",
  closed: "refused",
  conflict: "refused",
} as const satisfies Readonly<Record<string, OrderStatus>>;
