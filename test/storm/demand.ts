import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import type { Fault, StormOrder } from "./handler.ts";

export interface Demand {
  readonly orders: number;
  readonly seed: number;

  /** The number of each fault. */
  readonly faults: Readonly<Record<Fault, number>>;

  /** The number of orders that are sent again in a second message. */
  readonly duplicates: number;
}

/** Returns the messages of a flash sale, one unit each, in sending order. The same seed gives the same messages. */
export function messagesOf({ orders, seed, faults, duplicates }: Demand): readonly StormOrder[] {
  const random = xoroshiro128plus(seed);
  const pick = (below: number) => uniformInt(random, 0, below - 1);
  const messages: StormOrder[] = Array.from({ length: orders }, (_, i) => ({
    orderId: `order-${i + 1}`,
    sku: SKU,
    quantity: 1,
  }));
  const ill = Object.entries(faults).flatMap(([fault, times]) =>
    Array<Fault>(times).fill(fault as Fault),
  );
  for (const fault of ill) {
    const healthy = messages.flatMap((message, i) => (message.fault ? [] : [i]));
    const at = healthy[pick(healthy.length)] ?? 0;
    messages[at] = { ...(messages[at] as StormOrder), fault };
  }
  for (let i = 0; i < duplicates; i += 1) {
    const { fault: _, ...order } = messages[pick(orders)] as StormOrder;
    messages.splice(pick(messages.length), 0, order);
  }
  return messages;
}

export const SKU = "scarce";
