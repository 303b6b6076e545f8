/** Locks and stock in Redis. */

import { type IoredisClient, openRedisClient } from "./client/ioredis.ts";
import type { RedisOptions } from "./client/redis.ts";
import { type RedisStore, type RedisStoreOptions, redisStore } from "./store.ts";

export type { RedisStore } from "./store.ts";

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
  return redisStore(await openRedisClient(connection), options);
}
