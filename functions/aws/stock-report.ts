import * as z from "zod/mini";
import type { Inventory, Stock } from "../../core/inventory/inventory.ts";
import { workflow } from "../../core/steps/workflow.ts";

const Report = z.object({ day: z.string(), skus: z.array(z.string()) });

/** What is on hand of some skus, once a day. */
export function stockReportFrom(inventory: () => Promise<Inventory>) {
  return workflow({ name: "stock-report", version: 1, input: Report }, (ctx, { skus }) =>
    ctx.step("read", async () => {
      const stocks: Stock[] = [];
      for (const sku of skus) {
        const stock = await (await inventory()).get(sku);
        if (stock) stocks.push(stock);
      }
      return stocks;
    }),
  );
}
