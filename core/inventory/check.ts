import { checkSpan, checkText, checkWhole } from "../lock/checks.ts";
import { checkFence } from "../lock/fence.ts";
import {
  type Change,
  type Closing,
  MOST_UNITS,
  type Order,
  type QuantityChange,
  type Reserving,
  stockLock,
} from "./inventory.ts";
import type { Operation } from "./operation.ts";

/** The longest sku or operation id, in bytes of UTF-8. */
const LONGEST_ID = 255;

/** The most orders in one batch: they hold the stock's row until all of them are written. */
export const MOST_ORDERS = 1_000;

export function checkSku(sku: unknown): asserts sku is string {
  checkText("sku", sku, LONGEST_ID);
}

/** The checked operation that a call stands for. Throws before any I/O. */
export function toOperation(
  kind: Operation["kind"],
  change: Change & Partial<QuantityChange & Reserving & Closing>,
): Operation {
  const { sku, operationId, fence, quantity, reservation, expiresIn } = change;
  checkSku(sku);
  checkText("operation id", operationId, LONGEST_ID);
  if (kind === "confirm" || kind === "cancel") checkText("reservation", reservation, LONGEST_ID);
  else checkWhole("quantity", quantity, kind === "set" ? 0 : 1, MOST_UNITS);
  if (kind === "reserve") checkSpan("expiresIn", expiresIn, 1);
  if (fence !== undefined) checkFence(fence, stockLock(sku));
  return {
    kind,
    sku,
    operationId,
    fence,
    quantity: quantity ?? 0,
    reservation,
    expiresIn: Math.round((expiresIn ?? 0) * 1_000),
  };
}

export function checkOrders(orders: readonly Order[]): void {
  if (orders.length === 0 || orders.length > MOST_ORDERS) {
    throw new RangeError(`a batch has 1 to ${MOST_ORDERS} orders, not ${orders.length}`);
  }
}

export function checkPage(limit: number, before: number): void {
  checkWhole("limit", limit, 1, 10_000);
  checkWhole("before", before, 0, Number.MAX_SAFE_INTEGER);
}
