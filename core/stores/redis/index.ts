/** Locks and stock in Redis. */

import type { StockEventOptions } from "../../inventory/events.ts";
import type { Inventory } from "../../inventory/inventory.ts";
import { type OpenStore, openStore } from "../../lock/open-store.ts";
import { type IoredisClient, openRedisClient } from "./client/ioredis.ts";
import { PREFIX } from "./client/names.ts";
import type { Redis, RedisOptions } from "./client/redis.ts";
import { redisInventory } from "./inventory/index.ts";
import { type RedisLocksOptions, redisLocks } from "./locks/index.ts";

interface RedisStoreOptions extends RedisLocksOptions, StockEventOptions {}

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

/**
 * Opens a Redis 7 or later. It connects on first use.
 *
 *     await using shop = await openRedis({ host: "127.0.0.1" }, { prefix: "shop" });
 *
 * A client of ioredis in place of the options gives its settings. Rejects with a TypeError when the package ioredis is not
 * installed.
 */
export async function openRedis(
  connection: RedisOptions | IoredisClient,
  options: RedisStoreOptions = {},
): Promise<RedisStore> {
  const redis = await openRedisClient(connection);
  const locks = redisLocks(redis, { ...options, closeRedis: true });
  const { prefix = PREFIX, onStockEvent: onEvent } = options;
  const inventory = redisInventory(redis, { ...options, onEvent });
  return openStore({ locks, inventory, redis, prefix });
}
