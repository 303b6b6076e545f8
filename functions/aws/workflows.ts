import * as z from "zod/mini";
import { type Inventory, type StockLevel, stockLock } from "../../core/inventory/inventory.ts";
import { TerminalError } from "../../core/steps/errors.ts";
import type { TxScope } from "../../core/steps/step-options.ts";
import { workflow } from "../../core/steps/workflow.ts";
import type { TransactionalInventory } from "../../core/stores/transactional-inventory.ts";

const Order = z.object({
  orderId: z.string().check(z.minLength(1), z.maxLength(200)),
  sku: z.string().check(z.minLength(1), z.maxLength(200)),
  quantity: z.int().check(z.gte(1), z.lte(1_000)),
});

/** The time that a sale may take. A run is parked before the sale when less time is left. */
export const SELL_BUDGET = 2_000;

/** Creates the workflow that sells the units of an order exactly once. Further steps, such as a payment, belong here. */
export function placeOrderFrom(inventory: () => Promise<TransactionalInventory>) {
  const inTransaction = async ({ tx, fence, idempotencyKey }: TxScope) => ({
    stock: (await inventory()).within(tx),
    change: { fence, operationId: idempotencyKey },
  });
  return workflow(
    // Longer than a message can stay in a queue.
    { name: "place-order", version: 1, input: Order, id: ({ orderId }) => orderId, keep: "30d" },
    async (ctx, { orderId, sku, quantity }) => {
      const remaining = await ctx.step.tx(
        "sell",
        { lock: stockLock(sku), budget: SELL_BUDGET },
        async (scope) => {
          const { stock, change } = await inTransaction(scope);
          const sold = await stock.decrement({ ...change, sku, quantity });
          if (sold.outcome !== "applied") throw new TerminalError("SOLD_OUT");
          return sold.remaining;
        },
        async (_, scope) => {
          const { stock, change } = await inTransaction(scope);
          await stock.restock({ ...change, sku, quantity });
        },
      );
      return { orderId, sku, quantity, remaining };
    },
  );
}

const Report = z.object({ day: z.string(), skus: z.array(z.string()) });

/** Creates the workflow that reads the stock of some skus. */
export function stockReportFrom(inventory: () => Promise<Inventory>) {
  return workflow({ name: "stock-report", version: 1, input: Report }, (ctx, { skus }) =>
    ctx.step("read", async () => {
      const stocks: StockLevel[] = [];
      for (const sku of skus) {
        const stock = await (await inventory()).get(sku);
        if (stock) stocks.push(stock);
      }
      return stocks;
    }),
  );
}
