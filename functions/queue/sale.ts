import { type Inventory, type OrderAnswer, stockLock } from "../../core/inventory/inventory.ts";
import { follow } from "../../core/lock/abort.ts";
import { hasCode } from "../../core/lock/errors.ts";
import type { Lock, LockStore } from "../../core/lock/lock.ts";
import type { Millis } from "../../core/lock/time.ts";
import { LEAST_WORK } from "../lambda/invocation.ts";
import type { Invocation } from "./batch.ts";
import type { StockOrder } from "./order.ts";

/** Where stock is sold, and under which locks. */
export interface Stock {
  readonly inventory: Inventory;
  readonly locks: LockStore;
}

export interface Patience {
  readonly wait: Millis;
  readonly ttl: Millis;
}

/**
 * Sells to orders for one sku under one lock. A holder that was late, because it was frozen, has changed nothing: it
 * tries once more under a new lock.
 */
export async function sell(
  stock: Stock,
  orders: readonly StockOrder[],
  patience: Patience,
  invocation: Invocation,
): Promise<readonly OrderAnswer[]> {
  try {
    return await sellOnce(stock, orders, patience, invocation);
  } catch (error) {
    const isLate = hasCode(error, "FENCED_OUT", "LOCK_LOST");
    if (!isLate || invocation.deadline.remaining() < LEAST_WORK) throw error;
    return sellOnce(stock, orders, patience, invocation);
  }
}

async function sellOnce(
  { inventory, locks }: Stock,
  orders: readonly StockOrder[],
  patience: Patience,
  invocation: Invocation,
): Promise<readonly OrderAnswer[]> {
  const sku = orders[0]?.sku ?? "";
  const lock = await acquire(locks, stockLock(sku), patience, invocation);
  const { signal, ...scope } = follow(lock.signal, invocation.signal);
  try {
    const wanted = orders.map(({ orderId, quantity }) => ({ operationId: orderId, quantity }));
    return await inventory.decrementMany({ sku, orders: wanted, fence: lock.fence, signal });
  } finally {
    scope[Symbol.dispose]();
    await lock[Symbol.asyncDispose]();
  }
}

/** It waits as long as there will be a second left to sell. */
function acquire(
  locks: LockStore,
  name: string,
  { wait, ttl }: Patience,
  { deadline, signal }: Invocation,
): Promise<Lock> {
  const spare = Math.max(0, deadline.remaining() - LEAST_WORK);
  const atLeast = Math.max(ttl, locks.traits.minTtl);
  return locks.lock(name, { ttl: atLeast, renew: false, wait: Math.min(wait, spare), signal });
}
