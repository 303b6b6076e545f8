import { type StockLevel, type StockOutcome, unknownReservation } from "./inventory.ts";
import type { Operation, OperationKind } from "./operation.ts";
import type { Transition } from "./plan.ts";

/** The units of a sku. */
export type StockUnits = Omit<StockLevel, "sku">;

/** The reservation that an operation closes, as the store has it. */
export interface ReservationState {
  /** The recorded operation under its id. */
  readonly made: MadeReservation | undefined;

  /** Whether its units are set aside. */
  readonly isSetAside: boolean;

  /** Whether its units are set aside, and it has not expired. */
  readonly isOpen: boolean;
}

type MadeReservation = Pick<Operation, "kind" | "sku" | "quantity"> & {
  readonly outcome: StockOutcome;
};

/** Returns the effect of one operation on the stock. Throws if the reservation that it closes was never made. */
export function transition<S extends StockUnits>(
  stock: S,
  operation: Operation,
  reservation: ReservationState,
): Transition<S> {
  const { outcome, quantity, units } = EFFECTS[operation.kind](stock, operation, reservation);
  return { outcome, quantity, stock: { ...stock, ...units } };
}

interface Effect {
  readonly outcome: StockOutcome;
  readonly quantity: number;

  /** The units that change, with their new numbers. */
  readonly units?: Partial<StockUnits>;
}

type ToEffect = (stock: StockUnits, operation: Operation, reservation: ReservationState) => Effect;

const EFFECTS: Readonly<Record<OperationKind, ToEffect>> = {
  set({ onHand, supplied }, { quantity }) {
    return applied(quantity, { onHand: quantity, supplied: supplied + quantity - onHand });
  },

  restock({ onHand, supplied }, { quantity }) {
    return applied(quantity, { onHand: onHand + quantity, supplied: supplied + quantity });
  },

  decrement: take(({ sold }, quantity) => ({ sold: sold + quantity })),

  reserve: take(({ reserved }, quantity) => ({ reserved: reserved + quantity })),

  confirm({ reserved, sold }, operation, reservation) {
    const { quantity } = reservationFor(operation, reservation);
    if (!reservation.isOpen) return { outcome: "closed", quantity };
    return applied(quantity, { reserved: reserved - quantity, sold: sold + quantity });
  },

  cancel({ reserved, onHand }, operation, reservation) {
    const { quantity } = reservationFor(operation, reservation);
    if (!reservation.isSetAside) return { outcome: "closed", quantity };
    return applied(quantity, { reserved: reserved - quantity, onHand: onHand + quantity });
  },
};

/** Takes units off hand as far as they suffice; `add` books them elsewhere. */
function take(add: (stock: StockUnits, quantity: number) => Partial<StockUnits>): ToEffect {
  return (stock, { quantity }) => {
    const onHand = stock.onHand - quantity;
    if (onHand < 0) return { outcome: "sold-out", quantity };
    return applied(quantity, { ...add(stock, quantity), onHand });
  };
}

function applied(quantity: number, units: Partial<StockUnits>): Effect {
  return { outcome: "applied", quantity, units };
}

function reservationFor(
  { sku, reservation = "" }: Operation,
  { made }: ReservationState,
): MadeReservation {
  if (made?.kind === "reserve" && made.outcome === "applied" && made.sku === sku) return made;
  throw unknownReservation(sku, reservation);
}
