import type { LockStore } from "../../../lock/lock.ts";
import { sessionQueueBackend } from "../../../lock/session-queue.ts";
import { checkHolder, lockStore, type StoreOptions } from "../../../lock/store.ts";
import { checkRoot } from "../client/names.ts";
import type { ZooKeeper } from "../client/zookeeper.ts";
import { ZooKeeperLockQueues, zookeeperTraits } from "./lock-queues.ts";

export interface ZooKeeperStoreOptions extends StoreOptions {
  /** The ancestor of all nodes, such as "/shop/locks", created if missing. Default: the root. */
  readonly root?: string;
}

/**
 * Makes a store of fair locks in ZooKeeper 3.5 or later, in one queue with the locks of Curator and of ZooKeeper's own
 * recipe.
 *
 * Without contention, acquire and release take one round trip each: locks whose ttls round up to the same second share a session. A majority of
 * the servers has an acknowledged lock. Sessions expire by the servers' monotonic clocks.
 */
export function zookeeperLocks(
  zookeeper: ZooKeeper,
  options: ZooKeeperStoreOptions & { readonly closeZooKeeper?: boolean } = {},
): LockStore {
  return locksOver(zookeeperLockQueues(zookeeper, options), options);
}

/**
 * Makes the queues that a store's locks and elections have in common.
 *
 * @internal
 */
export function zookeeperLockQueues(
  zookeeper: ZooKeeper,
  options: ZooKeeperStoreOptions & { readonly closeZooKeeper?: boolean },
): ZooKeeperLockQueues {
  const { root = "", closeZooKeeper = false } = options;
  const holder = checkHolder(options, zookeeperTraits.name);
  checkRoot(root);
  return new ZooKeeperLockQueues(zookeeper, { root, ...holder, closeZooKeeper });
}

/** @internal */
export function locksOver(queues: ZooKeeperLockQueues, options: StoreOptions): LockStore {
  return lockStore(sessionQueueBackend(queues), options);
}
