import * as z from "zod/mini";
import { stockLock } from "../../core/inventory/inventory.ts";
import type { SqlInventory } from "../../core/inventory/sql.ts";
import { TerminalError } from "../../core/steps/errors.ts";
import { type TxScope, workflow } from "../../core/steps/workflow.ts";

const Order = z.object({
  orderId: z.string().check(z.minLength(1), z.maxLength(200)),
  sku: z.string().check(z.minLength(1), z.maxLength(200)),
  quantity: z.int().check(z.gte(1), z.lte(1_000)),
});

/** The time that a sale may take, by which it is put off when too little is left. */
export const SELL_BUDGET = 2_000;

/** Sells what is ordered, exactly once: the place for what else an order takes, such as its payment. */
export function placeOrderFrom(inventory: () => Promise<SqlInventory>) {
  const changing = async ({ tx, fence, idempotencyKey }: TxScope) => ({
    stock: (await inventory()).within(tx),
    change: { fence, operationId: idempotencyKey },
  });
  return workflow(
    // For longer than a message can stay in a queue.
    { name: "place-order", version: 1, input: Order, id: ({ orderId }) => orderId, keep: "30d" },
    async (ctx, { orderId, sku, quantity }) => {
      const remaining = await ctx.step.tx(
        "sell",
        { lock: stockLock(sku), budget: SELL_BUDGET },
        async (scope) => {
          const { stock, change } = await changing(scope);
          const sold = await stock.decrement({ ...change, sku, quantity });
          if (sold.outcome !== "applied") throw new TerminalError("SOLD_OUT");
          return sold.remaining;
        },
        async (_, scope) => {
          const { stock, change } = await changing(scope);
          await stock.restock({ ...change, sku, quantity });
        },
      );
      return { orderId, sku, quantity, remaining };
    },
  );
}
