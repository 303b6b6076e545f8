import type { Inventory } from "../../core/inventory/inventory.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { usualTtl } from "../../core/lock/request.ts";

/** Takes the lock for a moment, and claims the stock under its name. Resolves to false when a waiter came first. */
export async function fenceOut(
  inventory: Inventory,
  locks: LockStore,
  name: string,
): Promise<boolean> {
  const lock = await locks.tryLock(name, { ttl: usualTtl(locks) });
  if (!lock) return false;
  await using _ = lock;
  await inventory.claim(lock.fence);
  return true;
}
