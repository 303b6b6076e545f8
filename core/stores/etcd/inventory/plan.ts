import { unknownReservation, unknownSku } from "../../../inventory/inventory.ts";
import type { Operation, OperationBatch, OperationKind } from "../../../inventory/operation.ts";
import { type Plan, planBatch, type Transition } from "../../../inventory/plan.ts";
import { checkFenceState } from "./fence.ts";
import type { Snapshot } from "./snapshot.ts";
import { NO_STOCK, type OperationRecord, type StoredStock } from "./transaction.ts";

/**
 * Plans a batch on a snapshot. A recorded operation keeps its result; a new one throws a FencedOutError if the
 * fence is late.
 */
export function plan(
  { sku, fence, operations }: OperationBatch,
  snapshot: Snapshot,
): Plan<StoredStock> {
  const { stock, recorded } = snapshot;
  if (operations.some(({ operationId }) => !recorded.has(operationId))) {
    if (fence) checkFenceState(fence, snapshot.fence);
    if (!stock && operations[0]?.kind !== "set") throw unknownSku(sku);
  }
  const start = { stock: stock ?? NO_STOCK, recorded };
  return planBatch(operations, start, (stock, operation) =>
    TRANSITIONS[operation.kind](stock, operation, snapshot),
  );
}

type ToTransition = (
  stock: StoredStock,
  operation: Operation,
  snapshot: Snapshot,
) => Transition<StoredStock>;

const TRANSITIONS: Readonly<Record<OperationKind, ToTransition>> = {
  set(stock, { quantity }) {
    const supplied = stock.supplied + quantity - stock.onHand;
    return applied(quantity, { ...stock, onHand: quantity, supplied });
  },

  restock(stock, { quantity }) {
    const { onHand, supplied } = stock;
    return applied(quantity, {
      ...stock,
      onHand: onHand + quantity,
      supplied: supplied + quantity,
    });
  },

  decrement: take((stock, quantity) => ({ ...stock, sold: stock.sold + quantity })),

  reserve: take((stock, quantity) => ({
    ...stock,
    reserved: stock.reserved + quantity,
    reservations: stock.reservations + 1,
  })),

  confirm(stock, operation, snapshot) {
    const { quantity } = reservationFor(operation, snapshot);
    if (snapshot.lease === undefined) return { outcome: "closed", quantity, stock };
    return applied(quantity, { ...released(stock, quantity), sold: stock.sold + quantity });
  },

  cancel(stock, operation, snapshot) {
    const { quantity } = reservationFor(operation, snapshot);
    if (!snapshot.isSetAside) return { outcome: "closed", quantity, stock };
    return applied(quantity, { ...released(stock, quantity), onHand: stock.onHand + quantity });
  },
};

/** Takes units off hand as far as they suffice; `add` books them elsewhere. */
function take(add: (stock: StoredStock, quantity: number) => StoredStock): ToTransition {
  return (stock, { quantity }) => {
    const onHand = stock.onHand - quantity;
    if (onHand < 0) return { outcome: "sold-out", quantity, stock };
    return applied(quantity, { ...add(stock, quantity), onHand });
  };
}

function applied(quantity: number, stock: StoredStock): Transition<StoredStock> {
  return { outcome: "applied", quantity, stock };
}

function released(stock: StoredStock, quantity: number): StoredStock {
  const { reserved, reservations } = stock;
  return { ...stock, reserved: reserved - quantity, reservations: reservations - 1 };
}

/** Finds the record of the reservation that the operation closes. */
function reservationFor(
  { sku, reservation = "" }: Operation,
  { recorded }: Snapshot,
): OperationRecord {
  const made = recorded.get(reservation);
  if (made?.kind === "reserve" && made.outcome === "applied" && made.sku === sku) return made;
  throw unknownReservation(sku, reservation);
}
