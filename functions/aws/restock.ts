import { stockLock } from "../../core/inventory/inventory.ts";
import { instrument } from "../lambda/instrument.ts";
import { lockedHandler } from "../lambda/locked-handler.ts";
import { metrics } from "./metrics.ts";
import { services } from "./services.ts";

/** Units that have arrived. */
interface Delivery {
  /** A delivery is added once, however often the function is invoked with its id. */
  readonly deliveryId: string;
  readonly sku: string;
  readonly quantity: number;
}

/** Adds a delivery to the stock, under the lock of its sku. A busy lock is an error at once: invoke the function again. */
export const handler = instrument(
  lockedHandler(
    async () => (await services()).locks,
    { name: ({ sku }: Delivery) => stockLock(sku) },
    async ({ deliveryId, sku, quantity }, { fence, signal }) => {
      const { inventory } = await services();
      return inventory.restock({ sku, quantity, operationId: deliveryId, fence, signal });
    },
  ),
  metrics,
);
