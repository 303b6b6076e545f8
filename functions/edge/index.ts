/** Locks and stock in etcd, in Redis over HTTP and in DynamoDB, runs in DynamoDB, for runtimes that have Web APIs only. `lockstep` and `lockstep/inventory` run there as well. */
export { type DynamodbStore, dynamodbStore } from "../../core/stores/dynamodb/store.ts";
export { etcdGatewayClient } from "../../core/stores/etcd/client/gateway.ts";
export * from "../../core/stores/etcd/client/index.ts";
export { etcdInventory } from "../../core/stores/etcd/inventory/index.ts";
export { etcdLocks } from "../../core/stores/etcd/locks/index.ts";
export { openRedisRest } from "../../core/stores/redis/rest.ts";
export type { RedisStore } from "../../core/stores/redis/store.ts";
export { type LockedContext, lockedFetch, problemResponse } from "./locked-fetch.ts";
