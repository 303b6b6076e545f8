import type { StockEventOptions } from "../../inventory/events.ts";
import type { Inventory } from "../../inventory/inventory.ts";
import { type OpenStore, openStore } from "../../lock/open-store.ts";
import type { OptionNames } from "../../lock/options.ts";
import { STORE_OPTIONS } from "../options.ts";
import type { Etcd } from "./client/etcd.ts";
import { etcdInventory } from "./inventory/index.ts";
import { etcdElections } from "./locks/election.ts";
import { type EtcdLocksOptions, etcdLockQueues, locksOver } from "./locks/index.ts";

export interface EtcdStoreOptions extends EtcdLocksOptions, StockEventOptions {}

export interface EtcdStore extends OpenStore {
  readonly inventory: Inventory;

  /** For keys of your own, guarded writes, sessions, mutexes and elections. */
  readonly etcd: Etcd;

  /** Stands before all keys of the store. */
  readonly prefix: string;
}

export const ETCD_OPTIONS = {
  ...STORE_OPTIONS,
  prefix: true,
} satisfies OptionNames<EtcdStoreOptions>;

export function etcdStore(etcd: Etcd, options: EtcdStoreOptions): EtcdStore {
  const { prefix = "", onStockEvent: onEvent } = options;
  const queues = etcdLockQueues(etcd, { ...options, closeEtcd: true });
  return openStore({
    locks: locksOver(queues, options),
    elections: etcdElections(etcd, queues.sessions, prefix),
    inventory: etcdInventory(etcd, { prefix, onEvent }),
    etcd,
    prefix,
  });
}
