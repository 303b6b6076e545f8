import * as z from "zod";
import { workflow } from "../../core/steps/index.ts";

export const Order = z.object({ sku: z.string() });

/** A workflow that charges, and then sleeps for a day. */
export const order = workflow({ name: "order", version: 1, input: Order }, async (ctx, { sku }) => {
  await ctx.step("charge", async () => "paid");
  await ctx.sleep("until tomorrow", "1d");
  return sku;
});
