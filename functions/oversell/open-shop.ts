import type { Millis } from "../../core/lock/time.ts";
import type { AnyStore } from "../../infra/open.ts";
import { dynamodbShop } from "./dynamodb-shop.ts";
import { etcdShop } from "./etcd-shop.ts";
import { redisShop } from "./redis-shop.ts";
import type { Shop } from "./shop.ts";
import { sqlShop } from "./sql-shop.ts";
import type { Strategy } from "./strategy.ts";

/** Opens a shop on the store, with its hand-written lock in the store of the locks if that is another one. */
export function openShop(opened: AnyStore, name: string, locks: AnyStore = opened): Shop {
  const shop = shopOn(opened, name);
  // Redlock and ZooKeeper have locks of this library alone.
  if (locks === opened || !locks.has("inventory")) return shop;
  const lock = shopOn(locks, name);
  return {
    ...shop,
    setIfAbsent: lock.setIfAbsent,
    remove: lock.remove,
    removeIfOwner: lock.removeIfOwner,
    setnx: lock.setnx,
    async open(stock, keeper) {
      await Promise.all([shop.open(stock, keeper), lock.open(0, "by-hand")]);
    },
    async close() {
      await Promise.all([shop.close(), lock.close()]);
    },
  };
}

/** Throws a TypeError if the store has no stock that several processes share. */
function shopOn(opened: AnyStore, name: string): Shop {
  if (opened.has("database")) return sqlShop(opened.database, opened.inventory, name);
  if (opened.has("etcd")) return etcdShop(opened.etcd, opened.prefix, opened.inventory, name);
  if (opened.url.includes("partitions=")) {
    throw new TypeError("the incident runs in one partition: leave out the option partitions");
  }
  if (opened.has("redis")) return redisShop(opened.redis, opened.prefix, opened.inventory, name);
  if (opened.has("dynamodb")) return dynamodbShop(opened.dynamodb, opened.inventory, name);
  throw new TypeError(
    `the incident cannot be replayed on ${opened.locks.traits.name}: it needs a store with stock that several processes share`,
  );
}

/** Returns the minimum ttl of a strategy's lock in a store. SET … EX and EXPIRE take whole seconds. */
export function shortestTtl(opened: AnyStore, { lock }: Strategy): Millis {
  const isByHand = lock === "set-if-absent" || lock === "setnx-then-expire";
  const countsInSeconds = opened.has("redis") && isByHand;
  return countsInSeconds ? 1_000 : opened.locks.traits.minTtl;
}
