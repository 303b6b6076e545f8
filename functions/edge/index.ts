/** Locks, guarded writes and stock in etcd, for runtimes that have Web APIs only. `lockstep` and `lockstep/inventory` run there as well. */
export { etcdGatewayClient } from "../../core/stores/etcd/client/gateway.ts";
export * from "../../core/stores/etcd/client/index.ts";
export { etcdInventory } from "../../core/stores/etcd/inventory/index.ts";
export { etcdLocks } from "../../core/stores/etcd/locks/index.ts";
export { type LockedContext, lockedFetch, problemResponse } from "./locked-fetch.ts";
