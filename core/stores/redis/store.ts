import { createBatchInventory } from "../../inventory/backend.ts";
import type { StockEventOptions } from "../../inventory/events.ts";
import type { Inventory } from "../../inventory/inventory.ts";
import { type OpenStore, openLockStore } from "../../lock/open-store.ts";
import type { OptionNames } from "../../lock/options.ts";
import { pollingStore } from "../../lock/store.ts";
import { STORE_OPTIONS } from "../options.ts";
import { checkPrefix, PREFIX } from "./client/names.ts";
import type { Redis } from "./client/redis.ts";
import { redisInventory, redisStock } from "./inventory/index.ts";
import { type RedisLocksOptions, redisClaims, redisLocks } from "./locks/index.ts";
import { Partitions, partitionedClaims, partitionedStock } from "./partitions.ts";

export interface RedisStoreOptions extends RedisLocksOptions, StockEventOptions {}

export interface PartitionOptions extends RedisStoreOptions {
  /**
   * The number of slots of a cluster over which locks and stock are spread. Default 1.
   *
   * A lock, or a sku with its lock, is in one of them, by the text in the first braces of its name, else by the name. All processes
   * must use the same number: with another one, they use other keys. Each partition that is used takes a connection.
   */
  readonly partitions?: number;
}

export const REDIS_OPTIONS = {
  ...STORE_OPTIONS,
  prefix: true,
  replicas: true,
  replicaTimeout: true,
  partitions: true,
} satisfies OptionNames<PartitionOptions>;

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
  return openLockStore({
    locks,
    inventory: redisInventory(redis, { ...options, onEvent }),
    redis,
    prefix,
  });
}

/** Makes a store of several partitions, each with a prefix and a client of its own. */
export function partitionedRedisStore(
  open: (prefix: string) => Redis,
  { partitions: count = 1, ...options }: PartitionOptions,
): RedisStore {
  const { prefix = PREFIX, onStockEvent: onEvent } = options;
  if (count === 1) return redisStore(open(prefix), options);
  checkPrefix(prefix);
  const parts = Partitions.make(count, (part) => {
    const each = { ...options, prefix: `${prefix}/${part}` };
    const redis = open(each.prefix);
    const claims = redisClaims(redis, { ...each, closeRedis: true });
    return { prefix: each.prefix, redis, claims, stock: redisStock(redis, each) };
  });
  const [{ redis, prefix: first }] = parts.all;
  return openLockStore({
    locks: pollingStore(partitionedClaims(parts.map(({ claims }) => claims)), options),
    inventory: createBatchInventory(partitionedStock(parts.map(({ stock }) => stock)), { onEvent }),
    redis,
    prefix: first,
  });
}
