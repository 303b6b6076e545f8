/** Orders from a table, answered in batches by article. */
export { type FulfilOptions, type FulfilReport, fulfil } from "./fulfil.ts";
export {
  addOrders,
  countOrders,
  type OrderAnswer,
  type OrderCounts,
  type PlacedOrder,
} from "./orders.ts";
