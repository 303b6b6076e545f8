/** Stock that never oversells. */
export type { StockEvent } from "./events.ts";
export type {
  DecrementResult,
  Inventory,
  LedgerEntry,
  Reservation,
  StockLevel,
  StockOperations,
  StockResult,
} from "./inventory.ts";
export {
  InventoryError,
  stockLock,
} from "./inventory.ts";
