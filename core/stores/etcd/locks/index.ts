import type { LockStore } from "../../../lock/lock.ts";
import { checkOptionNames, type OptionNames } from "../../../lock/options.ts";
import { sessionQueueBackend } from "../../../lock/session-queue.ts";
import { checkHolder, lockStore, type StoreOptions } from "../../../lock/store.ts";
import type { Etcd } from "../client/etcd.ts";
import { checkPrefix } from "../client/names.ts";
import { EtcdLockQueues, etcdTraits } from "./lock-queues.ts";

export interface EtcdLocksOptions extends StoreOptions {
  /** The beginning of all keys, so that several users can share a cluster: "" or a text that ends in "/". */
  readonly prefix?: string;
}

const LOCKS_OPTIONS = {
  label: true,
  command: true,
  onEvent: true,
  maxWaiters: true,
  prefix: true,
  closeEtcd: true,
} satisfies OptionNames<NonNullable<Parameters<typeof etcdLocks>[1]>>;

/**
 * Makes a store of fair locks in etcd 3.4 or later, on the keys of Go's mutexes: without a prefix, a name is the lock of
 * `etcdctl lock NAME`. A lock skips the holders of nested names, such as `a/b` of `a`; Go's clients wait for them.
 *
 * Without contention, acquire and release take one call each: locks with the same ttl share a lease that is kept alive. A
 * majority of the members has an acknowledged lock. Leases expire by the servers' monotonic clocks; a change of the
 * leader renews all of them.
 */
export function etcdLocks(
  etcd: Etcd,
  options: EtcdLocksOptions & { readonly closeEtcd?: boolean } = {},
): LockStore {
  checkOptionNames("etcdLocks", options, LOCKS_OPTIONS);
  return locksOver(etcdLockQueues(etcd, options), options);
}

/** Makes the queues that a store's locks and elections have in common. */
export function etcdLockQueues(
  etcd: Etcd,
  options: EtcdLocksOptions & { readonly closeEtcd?: boolean },
): EtcdLockQueues {
  const { prefix = "", closeEtcd = false } = options;
  const holder = checkHolder(options, etcdTraits.name);
  checkPrefix(prefix);
  return new EtcdLockQueues(etcd, { prefix, ...holder, closeEtcd });
}

export function locksOver(queues: EtcdLockQueues, options: StoreOptions): LockStore {
  return lockStore(sessionQueueBackend(queues), options);
}
