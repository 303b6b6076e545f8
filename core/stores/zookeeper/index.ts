/** Locks, sessions and elections in ZooKeeper. */

import { checkOpening } from "../../lock/checks.ts";
import { type OpenStore, openStore } from "../../lock/open-store.ts";
import { checkOptionNames, type OptionNames } from "../../lock/options.ts";
import { STORE_OPTIONS } from "../options.ts";
import { zookeeperClient } from "./client/client.ts";
import type { ZooKeeper, ZooKeeperOptions } from "./client/zookeeper.ts";
import { zookeeperElections } from "./locks/election.ts";
import { locksOver, type ZooKeeperStoreOptions, zookeeperLockQueues } from "./locks/index.ts";

export type { Election, Leader } from "../../lock/election.ts";
export type { ZooKeeper, ZooKeeperSession } from "./client/zookeeper.ts";
export { zookeeperElection } from "./locks/election.ts";

export interface ZooKeeperStore extends OpenStore {
  /** For sessions and elections. */
  readonly zookeeper: ZooKeeper;
}

const CONNECTION_OPTIONS = {
  servers: true,
  user: true,
  password: true,
  tls: true,
} satisfies OptionNames<ZooKeeperOptions>;

const ZOOKEEPER_OPTIONS = {
  ...STORE_OPTIONS,
  root: true,
} satisfies OptionNames<ZooKeeperStoreOptions>;

/**
 * Opens ZooKeeper 3.5 or later. Connects on first use.
 *
 *     await using store = await openZooKeeper({ servers: ["127.0.0.1:2181"] }, { root: "/shop" });
 *     const lock = await store.locks.lock("report", { ttl: "10s", wait: "5s" }); // as Curator's on /shop/report
 */
export async function openZooKeeper(
  connection: ZooKeeperOptions,
  options: ZooKeeperStoreOptions = {},
): Promise<ZooKeeperStore> {
  checkOpening("openZooKeeper", connection, '{ servers: ["127.0.0.1:2181"] }');
  checkOptionNames("zookeeper", connection, CONNECTION_OPTIONS);
  checkOptionNames("openZooKeeper", options, ZOOKEEPER_OPTIONS);
  const zookeeper = zookeeperClient(connection);
  const queues = zookeeperLockQueues(zookeeper, { ...options, closeZooKeeper: true });
  const elections = zookeeperElections(queues.sessions, options.root ?? "");
  return openStore({ locks: locksOver(queues, options), elections, zookeeper });
}
