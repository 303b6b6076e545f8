import {
  type DecrementResult,
  type Inventory,
  stockLock,
} from "../../../core/inventory/inventory.ts";
import { follow } from "../../../core/lock/abort.ts";
import { hasCode } from "../../../core/lock/errors.ts";
import type { Lock, LockStore } from "../../../core/lock/lock.ts";
import type { Millis } from "../../../core/lock/time.ts";
import type { StockOrder } from "../../batch/orders.ts";
import { MIN_WORK_TIME } from "../../invocation/invocation.ts";
import type { Invocation } from "./batch.ts";

/** The inventory that the orders decrement, and the store of its locks. */
export interface StockBackend {
  readonly inventory: Inventory;
  readonly locks: LockStore;
}

export interface LockTimes {
  readonly wait: Millis;
  readonly ttl: Millis;
}

/**
 * Sells to the orders for one sku under one lock. A holder that was late, because its process was frozen, has changed
 * nothing: the sale is tried once more under a new lock.
 */
export async function sell(
  stock: StockBackend,
  orders: readonly StockOrder[],
  times: LockTimes,
  invocation: Invocation,
): Promise<readonly DecrementResult[]> {
  try {
    return await sellOnce(stock, orders, times, invocation);
  } catch (error) {
    const isLate = hasCode(error, "FENCED_OUT", "LOCK_LOST");
    if (!isLate || invocation.deadline.remaining() < MIN_WORK_TIME) throw error;
    return sellOnce(stock, orders, times, invocation);
  }
}

async function sellOnce(
  { inventory, locks }: StockBackend,
  orders: readonly StockOrder[],
  times: LockTimes,
  invocation: Invocation,
): Promise<readonly DecrementResult[]> {
  const sku = orders[0]?.sku ?? "";
  const lock = await acquire(locks, stockLock(sku), times, invocation);
  const { signal, ...scope } = follow(lock.signal, invocation.signal);
  try {
    const decrements = orders.map(({ orderId, quantity }) => ({ operationId: orderId, quantity }));
    return await inventory.decrementMany({ sku, orders: decrements, fence: lock.fence, signal });
  } finally {
    scope[Symbol.dispose]();
    await lock[Symbol.asyncDispose]();
  }
}

/** Waits for the lock, and leaves a second of the invocation for the sale. */
function acquire(
  locks: LockStore,
  name: string,
  { wait, ttl }: LockTimes,
  { deadline, signal }: Invocation,
): Promise<Lock> {
  const spare = Math.max(0, deadline.remaining() - MIN_WORK_TIME);
  const atLeast = Math.max(ttl, locks.traits.minTtl);
  return locks.lock(name, { ttl: atLeast, renew: false, wait: Math.min(wait, spare), signal });
}
