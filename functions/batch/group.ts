import { claimFence } from "../../core/database/claim.ts";
import type { Database, Transaction } from "../../core/database/sql.ts";
import { UnknownSkuError } from "../../core/inventory/inventory.ts";
import type { SqlInventory } from "../../core/inventory/sql.ts";
import type { Fence } from "../../core/lock/fence.ts";
import { answerOrders, type OrderAnswer, openOrders, type PlacedOrder } from "./orders.ts";

export interface GroupOptions {
  /** Where the orders are, and the stock. */
  readonly database: Database;
  readonly inventory: SqlInventory;

  /** How many orders at the most. */
  readonly group: number;

  /** Ends it at once: what is under way is rolled back. */
  readonly abort?: AbortSignal;
}

/** By order id. */
export type Answers = ReadonlyMap<string, OrderAnswer>;

/** Answers the oldest open orders for a sku in one transaction, under the fence of its lock. */
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
    if (!(error instanceof UnknownSkuError)) throw error;
    return transact(
      options,
      sku,
      fence,
      async (_, orders) => new Map(orders.map(({ orderId }) => [orderId, "unknown-sku"])),
    );
  }
}

/** The open orders are read once the fence is claimed, and their answers committed with what `decide` did. */
function transact(
  { database, group, abort }: GroupOptions,
  sku: string,
  fence: Fence,
  decide: (tx: Transaction, orders: readonly PlacedOrder[]) => Promise<Answers>,
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
} as const satisfies Readonly<Record<string, OrderAnswer>>;
