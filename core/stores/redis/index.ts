/** Locks and stock in Redis. */

import { checkOptionNames } from "../../lock/options.ts";
import { type RedisSource, redisOpener } from "./client/open.ts";
import {
  type PartitionOptions,
  partitionedRedisStore,
  REDIS_OPTIONS,
  type RedisStore,
} from "./store.ts";

export type { RedisStore } from "./store.ts";

/**
 * Opens Redis 7 or later: a server, a cluster, or the master that sentinels name. Connects on first use.
 *
 *     await using shop = await openRedis({ host: "127.0.0.1" }, { prefix: "shop" });
 *     await using sharded = await openRedis({ cluster: [{ host: "redis-1" }, { host: "redis-2" }] });
 *     await using watched = await openRedis({ sentinels: [{ host: "sentinel-1" }], master: "shop" });
 *
 * A client of the package ioredis or redis in place of the options gives its settings. Options need the package ioredis:
 * rejects with a TypeError when it is not installed.
 */
export async function openRedis(
  source: RedisSource,
  options: PartitionOptions = {},
): Promise<RedisStore> {
  checkOptionNames("openRedis", options, REDIS_OPTIONS);
  const open = await redisOpener(source);
  return partitionedRedisStore(open, options);
}
