import type { StockEventOptions } from "../inventory/events.ts";
import type { OptionNames } from "../lock/options.ts";
import type { StoreOptions } from "../lock/store.ts";

/** The options of every store. A store without stock takes a listener for its events as well. */
export const STORE_OPTIONS = {
  label: true,
  command: true,
  onEvent: true,
  maxWaiters: true,
  onStockEvent: true,
} satisfies OptionNames<StoreOptions & StockEventOptions>;
