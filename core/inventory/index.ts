/** Stock that never oversells. */
export type { StockEvent } from "./events.ts";
export type {
  CloseReservation,
  DecrementResult,
  Inventory,
  LedgerEntry,
  NewReservation,
  QuantityChange,
  Reservation,
  StockLevel,
  StockOperations,
  StockResult,
} from "./inventory.ts";
export {
  InventoryError,
  stockLock,
} from "./inventory.ts";
