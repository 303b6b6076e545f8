export {
  type Change,
  type Compare,
  type Etcd,
  type EtcdOptions,
  type EtcdTls,
  get,
  isAbsent,
  isCreated,
  type KeyValue,
  type Op,
  put,
  type RangeAnswer,
  remove,
  type Txn,
  type TxnAnswer,
  type Watcher,
} from "../../etcd/etcd.ts";
export {
  type Fetch,
  type FetchAnswer,
  type GatewayOptions,
  openEtcdGateway,
} from "../../etcd/gateway.ts";
export { openEtcd } from "../../etcd/grpc.ts";
export { guardedWrite } from "../../etcd/guarded.ts";
export { nodeFetch } from "../../etcd/node-fetch.ts";
export { Election, type Leader } from "./election.ts";
export { type EtcdStoreOptions, etcdStore } from "./etcd-store.ts";
export { Mutex, type MutexOptions } from "./mutex.ts";
export { Session, type SessionOptions } from "./session.ts";
