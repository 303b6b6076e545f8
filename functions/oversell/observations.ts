import type { Delivery, HandledOrder } from "./messages.ts";
import type { ShopTotals } from "./shop.ts";
import type { Strategy } from "./strategy.ts";
import { beliefOf, type Interval } from "./trace.ts";

/** The answer to an order. */
export interface OrderRecord {
  readonly orderId: string;
  readonly answer: "sold" | "sold-out";
  readonly millis: number;
}

/** The handling of a delivery by a worker. */
export interface Handling extends Delivery, HandledOrder {
  /** The worker's number, from 0. */
  readonly worker: number;
}

/** The time in which a worker considered itself the holder of the lock. */
export interface Hold extends Interval {
  readonly handling: Handling;
}

/** The observations of one strategy. */
export interface Observations {
  readonly strategy: Strategy;
  readonly stock: number;
  readonly totals: ShopTotals;
  readonly orders: readonly OrderRecord[];
  readonly handlings: readonly Handling[];
  readonly ttlMillis: number;

  /** The number of orders that never get an answer, because the lock is held for ever. */
  readonly stuck: number;

  /** The duration of the sale. */
  readonly millis: number;
}

/** Returns the times in which workers considered themselves the holder. */
export function holdsOf(handlings: readonly Handling[]): readonly Hold[] {
  return handlings.flatMap((handling) => {
    const belief = beliefOf(handling.trace);
    return belief ? [{ ...belief, handling }] : [];
  });
}
