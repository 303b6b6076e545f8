import type { Etcd, EtcdOptions } from "../../core/stores/etcd/client/etcd.ts";
import { etcdClientOver, loadEtcd3 } from "../../core/stores/etcd/client/etcd3-transport.ts";

const etcd3 = await loadEtcd3();

/** Makes a client of etcd over the gRPC of the package etcd3. It connects on first use. */
export function etcd3Client(options: EtcdOptions): Etcd {
  return etcdClientOver(etcd3, options);
}
