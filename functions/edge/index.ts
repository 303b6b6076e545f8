/** Locks, fences, guarded writes and stock in etcd, for runtimes that have nothing but Web APIs. */

export {
  type Change,
  type Compare,
  type Etcd,
  type EtcdOptions,
  type Get,
  get,
  isAbsent,
  isCreated,
  type Keys,
  type KeyValue,
  type Op,
  type OpAnswer,
  put,
  type RangeAnswer,
  remove,
  type Txn,
  type TxnAnswer,
  type Watcher,
} from "../../core/etcd/etcd.ts";
export { type Fetch, type GatewayOptions, openEtcdGateway } from "../../core/etcd/gateway.ts";
export { guardedWrite } from "../../core/etcd/guarded.ts";
export * from "../../core/index.ts";
export { type EtcdInventoryOptions, etcdInventory } from "../../core/inventory/etcd.ts";
export {
  type Answer,
  type Inventory,
  InventoryError,
  OperationConflictError,
  type Stock,
  stockLock,
  UnknownReservationError,
  UnknownSkuError,
} from "../../core/inventory/inventory.ts";
export { type EtcdStoreOptions, etcdStore } from "../../core/stores/etcd/etcd-store.ts";
export { problemResponse } from "./problem-response.ts";
export {
  type EdgeContext,
  type EdgeHandler,
  type EdgeLockOptions,
  type UnderLock,
  withLock,
} from "./with-lock.ts";
