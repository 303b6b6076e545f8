/** Stock that never oversells. */

export { type EtcdInventoryOptions, etcdInventory } from "./etcd.ts";
export type {
  Answer,
  Batch,
  Change,
  Closing,
  Entry,
  Inventory,
  InventoryErrorCode,
  Kind,
  Order,
  OrderAnswer,
  Outcome,
  QuantityChange,
  Reserving,
  Stock,
} from "./inventory.ts";
export {
  InventoryError,
  MOST_UNITS,
  OperationConflictError,
  stockLock,
  UnknownReservationError,
  UnknownSkuError,
} from "./inventory.ts";
export { observed, type StockEvent, type StockListener } from "./observed.ts";
export { type RedisInventoryOptions, redisInventory } from "./redis.ts";
export { type InventoryWithin, type SqlInventory, sqlInventory } from "./sql.ts";
