import type { StockEventOptions } from "../../inventory/events.ts";
import type { Inventory } from "../../inventory/inventory.ts";
import { type OpenStore, openStore } from "../../lock/open-store.ts";
import { PREFIX } from "./client/names.ts";
import type { Redis } from "./client/redis.ts";
import { redisInventory } from "./inventory/index.ts";
import { type RedisLocksOptions, redisLocks } from "./locks/index.ts";

export interface RedisStoreOptions extends RedisLocksOptions, StockEventOptions {}

export interface RedisStore extends OpenStore {
  readonly inventory: Inventory;

  /**
   * For keys of your own.
   *
   * @internal
   */
  readonly redis: Redis;

  /** Stands before all keys of the store, in braces. */
  readonly prefix: string;
}

export function redisStore(redis: Redis, options: RedisStoreOptions): RedisStore {
  const { prefix = PREFIX, onStockEvent: onEvent } = options;
  const locks = redisLocks(redis, { ...options, closeRedis: true });
  return openStore({
    locks,
    inventory: redisInventory(redis, { ...options, onEvent }),
    redis,
    prefix,
  });
}
