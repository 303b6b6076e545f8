/** Locks, stock, sessions and elections in etcd. */

import { checkOpening } from "../../lock/checks.ts";
import { checkOptionNames } from "../../lock/options.ts";
import type { EtcdOptions } from "./client/etcd.ts";
import { type Etcd3Client, optionsOf } from "./client/etcd3.ts";
import { etcdClientOver, loadEtcd3 } from "./client/etcd3-transport.ts";
import { etcdClient } from "./client/grpc.ts";
import { ETCD_OPTIONS, type EtcdStore, type EtcdStoreOptions, etcdStore } from "./store.ts";

export type { Election, Leader } from "../../lock/election.ts";
export * from "./client/index.ts";
export { etcdElection } from "./locks/election.ts";
export { EtcdMutex } from "./locks/mutex.ts";
export { EtcdSession } from "./locks/session.ts";
export { openEtcdGateway } from "./node-gateway.ts";
export type { EtcdStore } from "./store.ts";

/**
 * Opens etcd 3.4 or later over gRPC. Connects on first use.
 *
 *     await using shop = await openEtcd({ endpoints: ["127.0.0.1:2379"] }, { prefix: "shop/" });
 *
 * Needs no package. A client of etcd3 in place of the options gives its settings and the gRPC of its package.
 */
export async function openEtcd(
  connection: EtcdOptions | Etcd3Client,
  options: EtcdStoreOptions = {},
): Promise<EtcdStore> {
  checkOpening("openEtcd", connection, '{ endpoints: ["127.0.0.1:2379"] }');
  checkOptionNames("openEtcd", options, ETCD_OPTIONS);
  const etcd =
    "leaseClient" in connection
      ? etcdClientOver(await loadEtcd3(), optionsOf(connection))
      : etcdClient(connection);
  return etcdStore(etcd, options);
}
