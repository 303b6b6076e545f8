import { checkText } from "../../lock/checks.ts";
import type { LockStore } from "../../lock/lock.ts";
import { lockStore, type StoreOptions } from "../../lock/store.ts";
import { checkRoot } from "../../zookeeper/names.ts";
import type { ZooKeeper } from "../../zookeeper/zookeeper.ts";
import { ZooKeeperBackend } from "./backend.ts";

export { openZooKeeper } from "../../zookeeper/client.ts";
export {
  BadVersionError,
  type Created,
  type NewNode,
  type Node,
  NodeExistsError,
  NoNodeError,
  type Op,
  type Session,
  type Stat,
  type ZooKeeper,
  type ZooKeeperOptions,
} from "../../zookeeper/zookeeper.ts";
export { Election, type Leader } from "./election.ts";

export interface ZooKeeperStoreOptions extends StoreOptions {
  /** The node below which all others are, as "/shop/locks"; it is made where it is missing. Default: the root. */
  readonly root?: string;

  /** Close the client together with the store. Default false: who opened it closes it. */
  readonly closeZooKeeper?: boolean;
}

/**
 * Locks in ZooKeeper 3.5 or later, fair, in one line with those of Curator and of ZooKeeper's own recipe.
 *
 * A lock that nobody waits for takes one round trip to take and one to give back: those with one ttl share a
 * session. An acknowledged lock is on a majority of the servers. Sessions go by the servers' monotonic clocks.
 */
export function zookeeperStore(
  zookeeper: ZooKeeper,
  options: ZooKeeperStoreOptions = {},
): LockStore {
  const { root = "", label = "zookeeper", closeZooKeeper = false, ...rest } = options;
  checkText("label", label, 200);
  checkRoot(root);
  return lockStore(new ZooKeeperBackend(zookeeper, { root, label, closeZooKeeper }), rest);
}
