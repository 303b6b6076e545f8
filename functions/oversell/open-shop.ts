import type { Millis } from "../../core/lock/time.ts";
import type { Opened } from "../../infra/open.ts";
import { etcdShop } from "./etcd-shop.ts";
import { redisShop } from "./redis-shop.ts";
import type { Shop } from "./shop.ts";
import { sqlShop } from "./sql-shop.ts";
import type { Strategy } from "./strategy.ts";

/** The shop on this store. Throws a TypeError for a store that other processes cannot use. */
export function openShop(opened: Opened, name: string): Shop {
  const { database, etcd, redis, inventory, locks } = opened;
  if (database && inventory) return sqlShop(database, inventory, name);
  if (etcd && inventory) return etcdShop(etcd.client, etcd.prefix, inventory, name);
  if (redis && inventory) return redisShop(redis.client, redis.prefix, inventory, name);
  throw new TypeError(
    `the incident cannot be replayed on ${locks.traits.name}: it needs stock that several processes share`,
  );
}

/** The shortest ttl of a strategy's lock: the incident's SET … EX counts in whole seconds. */
export function shortestTtl({ redis, locks }: Opened, { lock }: Strategy): Millis {
  return redis && lock === "set-if-absent" ? 1_000 : locks.traits.minTtl;
}
