import { z } from "zod";
import { TerminalError } from "../../core/steps/errors.ts";
import { workflow } from "../../core/steps/workflow.ts";

const Order = z.object({
  orderId: z.string(),
  sku: z.string().default("teapot"),

  /** What goes wrong. */
  trouble: z.enum(["none", "declined", "flaky", "waits"]).default("none"),
});

/** An order as the tests of the command line place it. */
export const placeOrder = workflow(
  { name: "place-order", version: 1, input: Order, id: ({ orderId }) => orderId },
  async (ctx, { orderId, sku, trouble }) => {
    await ctx.step.tx(
      "reserve",
      { lock: `sku/${sku}` },
      async () => ({ reserved: 1 }),
      async () => {},
    );
    await ctx.step(
      "charge",
      { retry: { attempts: 3, base: "20ms" } },
      async ({ attempt }) => {
        if (trouble === "declined") throw new TerminalError("DECLINED", "the card was declined");
        if (trouble === "flaky" && attempt < 3) throw new Error("the provider is away");
        return `payment of ${orderId}`;
      },
      async () => {},
    );
    await ctx.sleep("pack", 60);
    const paid =
      trouble === "waits" ? await ctx.waitFor("paid", z.object({ amount: z.number() })) : undefined;
    return { orderId, amount: paid?.amount };
  },
);

export const noop = workflow({ name: "noop", version: 1, input: z.null() }, async () => "done");
