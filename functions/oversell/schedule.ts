import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import type { Delivery, Fault } from "./messages.ts";

export interface Demand {
  readonly stock: number;
  readonly buyers: number;
  readonly seed: number;

  /** How often each thing goes wrong. */
  readonly faults: Readonly<Record<Fault, number>>;

  /** How many orders are delivered twice. */
  readonly duplicates: number;
}

/**
 * The deliveries of a sale: each buyer orders one unit, faults happen while there is still stock, and some
 * orders come a second time a little later. The same seed gives the same deliveries.
 */
export function scheduleOf({
  stock,
  buyers,
  seed,
  faults,
  duplicates,
}: Demand): readonly Delivery[] {
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
    // An order over which a process is killed comes again anyway.
    if (original?.fault !== undefined) continue;
    deliveries.splice(at + 2 + pick(8), 0, original as Delivery);
  }
  return deliveries;
}
