import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import type { Delivery, Fault } from "./messages.ts";

export interface ScheduleOptions {
  readonly stock: number;
  readonly buyers: number;
  readonly seed: number;

  /** The number of faults of each kind. */
  readonly faults: Readonly<Record<Fault, number>>;

  /** The number of orders delivered twice. */
  readonly duplicates: number;
}

/**
 * Returns the deliveries of a sale. Each buyer orders one unit, faults happen while stock is left, and some orders are
 * delivered again soon after. A seed determines the deliveries.
 */
export function scheduleDeliveries({
  stock,
  buyers,
  seed,
  faults,
  duplicates,
}: ScheduleOptions): readonly Delivery[] {
  const random = xoroshiro128plus(seed);
  const pick = (below: number) => uniformInt(random, 0, below - 1);
  const deliveries: Delivery[] = Array.from({ length: buyers }, (_, i) => ({
    orderId: `order-${i + 1}`,
    fault: undefined,
  }));
  const early = Array.from(
    { length: Math.max(1, Math.floor(Math.min(stock, buyers) * 0.7)) },
    (_, i) => i,
  );
  for (const [fault, times] of Object.entries(faults) as [Fault, number][]) {
    for (let i = 0; i < times && early.length > 0; i += 1) {
      const [at = 0] = early.splice(pick(early.length), 1);
      deliveries[at] = { orderId: `order-${at + 1}`, fault };
    }
  }
  for (let i = 0; i < duplicates; i += 1) {
    const at = pick(Math.min(stock, deliveries.length));
    const original = deliveries[at];
    // An order with a fault may be redelivered anyway.
    if (original?.fault !== undefined) continue;
    deliveries.splice(at + 2 + pick(8), 0, original as Delivery);
  }
  return deliveries;
}

/** The number of times that the overloaded identity service blocks its callers. */
const OUTAGES = 3;

/**
 * Returns when the overloaded identity service answers, in milliseconds since the start of the sale. Until then the service
 * blocks every call: for two to four ttls at a time, as it did for 30 s under a lock of 10 s.
 */
export function scheduleAnswers(seed: number, ttlMillis: number): readonly number[] {
  const random = xoroshiro128plus(seed);
  let at = 0;
  return Array.from({ length: OUTAGES }, () => {
    at += uniformInt(random, 2 * ttlMillis, 4 * ttlMillis);
    return at;
  });
}
