import type { Etcd, EtcdOptions } from "../../core/stores/etcd/client/etcd.ts";
import * as grpc from "../../core/stores/etcd/client/grpc.ts";

const etcd3 = await grpc.loadEtcd3();

/** Makes a client of etcd over gRPC. It connects on first use. */
export function etcdClient(options: EtcdOptions): Etcd {
  return grpc.etcdClient(options, etcd3);
}
