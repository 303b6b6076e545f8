import type { Opened } from "../../infra/open.ts";
import { etcdShop } from "./etcd-shop.ts";
import type { Shop } from "./shop.ts";
import { sqlShop } from "./sql-shop.ts";

/** The shop on this store. Throws a TypeError for a store that other processes cannot use. */
export function openShop({ database, etcd, inventory, locks }: Opened, name: string): Shop {
  if (database && inventory) return sqlShop(database, inventory, name);
  if (etcd && inventory) return etcdShop(etcd.client, etcd.prefix, inventory, name);
  throw new TypeError(
    `the incident cannot be replayed on ${locks.traits.name}: it needs stock that several processes share`,
  );
}
