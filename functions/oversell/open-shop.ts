import type { Millis } from "../../core/lock/time.ts";
import type { AnyStore } from "../../infra/open.ts";
import { etcdShop } from "./etcd-shop.ts";
import { redisShop } from "./redis-shop.ts";
import type { Shop } from "./shop.ts";
import { sqlShop } from "./sql-shop.ts";
import type { Strategy } from "./strategy.ts";

/** Opens a shop on the store. Throws a TypeError if the store has no stock that several processes share. */
export function openShop(opened: AnyStore, name: string): Shop {
  if (opened.has("database")) return sqlShop(opened.database, opened.inventory, name);
  if (opened.has("etcd")) return etcdShop(opened.etcd, opened.prefix, opened.inventory, name);
  if (opened.has("redis")) return redisShop(opened.redis, opened.prefix, opened.inventory, name);
  throw new TypeError(
    `the incident cannot be replayed on ${opened.locks.traits.name}: it needs a store with stock that several processes share`,
  );
}

/** Returns the minimum ttl of a strategy's lock. The incident's SET … EX takes whole seconds. */
export function shortestTtl(opened: AnyStore, { lock }: Strategy): Millis {
  const countsInSeconds = opened.has("redis") && lock === "set-if-absent";
  return countsInSeconds ? 1_000 : opened.locks.traits.minTtl;
}
