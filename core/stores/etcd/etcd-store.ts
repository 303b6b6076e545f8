import type { Etcd } from "../../etcd/etcd.ts";
import { checkPrefix } from "../../etcd/names.ts";
import { checkText } from "../../lock/checks.ts";
import type { LockStore } from "../../lock/lock.ts";
import { lockStore, type StoreOptions } from "../../lock/store.ts";
import { EtcdBackend } from "./backend.ts";

export interface EtcdStoreOptions extends StoreOptions {
  /** Stands before all keys, so that several users can share a cluster: "" or a text that ends in "/". */
  readonly prefix?: string;

  /** Close the client together with the store. Default false: who opened it closes it. */
  readonly closeEtcd?: boolean;
}

/**
 * Locks in etcd 3.4 or later, fair, on the keys of Go's mutexes: a name without "/" and "%" is the very lock
 * of `etcdctl lock NAME`.
 *
 * A lock that nobody waits for takes one call to take and one to give back: those with one ttl share a lease
 * that is kept alive. An acknowledged lock is on a majority of the nodes. Leases go by the servers' monotonic
 * clocks; a change of leader renews them all.
 */
export function etcdStore(etcd: Etcd, options: EtcdStoreOptions = {}): LockStore {
  const { prefix = "", label = "etcd", closeEtcd = false, ...rest } = options;
  checkText("label", label, 200);
  checkPrefix(prefix);
  return lockStore(new EtcdBackend(etcd, { prefix, label, closeEtcd }), rest);
}
