import { stockLock } from "lockstep/inventory";
import { TerminalError, workflow } from "lockstep/steps";
import * as z from "zod";
import { shop } from "./stores.ts";

const Order = z.object({
  orderId: z.string().min(1).max(200),
  sku: z.string().min(1).max(200),
  quantity: z.int().min(1).max(1_000),
});

/** Sells the units of an order exactly once. Further steps, such as a payment, belong here. */
export const placeOrder = workflow(
  // Runs are kept for longer than a message can stay in a queue.
  { name: "place-order", version: 1, input: Order, id: ({ orderId }) => orderId, keep: "30d" },
  async (ctx, { orderId, sku, quantity }) => {
    const remaining = await ctx.step.tx(
      "sell",
      { lock: stockLock(sku), budget: "2s" },
      async ({ tx, fence, idempotencyKey: operationId }) => {
        const { inventory } = await shop();
        const sold = await inventory.within(tx).decrement({ sku, quantity, operationId, fence });
        if (sold.outcome !== "applied") throw new TerminalError("SOLD_OUT");
        return sold.remaining;
      },
      async (_, { tx, fence, idempotencyKey: operationId }) => {
        const { inventory } = await shop();
        await inventory.within(tx).restock({ sku, quantity, operationId, fence });
      },
    );
    return { orderId, sku, quantity, remaining };
  },
);

const Report = z.object({ day: z.string(), skus: z.array(z.string()) });

/** Reads the stock of some skus. */
export const stockReport = workflow(
  { name: "stock-report", version: 1, input: Report },
  async (ctx, { skus }) =>
    ctx.step("read", async () => {
      const { inventory } = await shop();
      const levels = await Promise.all(skus.map((sku) => inventory.get(sku)));
      return levels.filter((level) => level !== undefined);
    }),
);

export const workflows = [placeOrder, stockReport];
