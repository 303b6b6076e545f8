import { UnknownReservationError, UnknownSkuError } from "../inventory.ts";
import type { Batch, Operation } from "../operation.ts";
import { type Plan, planOf, type Step } from "../plan.ts";
import { checkStanding } from "./fencing.ts";
import { NOTHING, type Recorded, type Units } from "./records.ts";
import type { View } from "./view.ts";

/**
 * What a batch comes to. What was done before keeps its answer; all else is refused when the fence is late,
 * with a FencedOutError.
 */
export function decide({ sku, fence, operations }: Batch, view: View): Plan<Units> {
  const { units, standing, recorded } = view;
  if (operations.some(({ operationId }) => !recorded.has(operationId))) {
    if (fence) checkStanding(fence, standing);
    if (!units && operations[0]?.kind !== "set") throw new UnknownSkuError(sku);
  }
  const start = { stock: units ?? NOTHING, noted: recorded };
  return planOf(operations, start, (stock, operation) =>
    STEPS[operation.kind](stock, operation, view),
  );
}

type ToStep = (units: Units, operation: Operation, view: View) => Step<Units>;

const STEPS: Readonly<Record<Operation["kind"], ToStep>> = {
  set(units, { quantity }) {
    const supplied = units.supplied + quantity - units.onHand;
    return applied(quantity, { ...units, onHand: quantity, supplied });
  },

  restock(units, { quantity }) {
    const { onHand, supplied } = units;
    return applied(quantity, {
      ...units,
      onHand: onHand + quantity,
      supplied: supplied + quantity,
    });
  },

  decrement: take((units, quantity) => ({ ...units, sold: units.sold + quantity })),

  reserve: take((units, quantity) => ({
    ...units,
    reserved: units.reserved + quantity,
    reservations: units.reservations + 1,
  })),

  confirm(units, operation, view) {
    const { quantity } = reservationOf(operation, view);
    if (view.lease === undefined) return { outcome: "closed", quantity, stock: units };
    return applied(quantity, { ...released(units, quantity), sold: units.sold + quantity });
  },

  cancel(units, operation, view) {
    const { quantity } = reservationOf(operation, view);
    if (!view.isSetAside) return { outcome: "closed", quantity, stock: units };
    return applied(quantity, { ...released(units, quantity), onHand: units.onHand + quantity });
  },
};

function take(add: (units: Units, quantity: number) => Units): ToStep {
  return (units, { quantity }) => {
    const onHand = units.onHand - quantity;
    if (onHand < 0) return { outcome: "sold-out", quantity, stock: units };
    return applied(quantity, { ...add(units, quantity), onHand });
  };
}

function applied(quantity: number, stock: Units): Step<Units> {
  return { outcome: "applied", quantity, stock };
}

function released(units: Units, quantity: number): Units {
  const { reserved, reservations } = units;
  return { ...units, reserved: reserved - quantity, reservations: reservations - 1 };
}

/** The record of the reservation that the operation closes. */
function reservationOf({ sku, reservation = "" }: Operation, { recorded }: View): Recorded {
  const made = recorded.get(reservation);
  if (made?.kind === "reserve" && made.outcome === "applied" && made.sku === sku) return made;
  throw new UnknownReservationError(sku, reservation);
}
