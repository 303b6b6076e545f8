import { z } from "zod";
import { TerminalError } from "../../core/steps/errors.ts";
import { workflow } from "../../core/steps/workflow.ts";

const Order = z.object({
  orderId: z.string(),
  sku: z.string().default("teapot"),

  /** The fault to inject. */
  trouble: z.enum(["none", "declined", "flaky", "leaks", "waits"]).default("none"),
});

/** The order workflow of the command line tests. */
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
        if (trouble === "declined") {
          throw new TerminalError("DECLINED", "the card was declined", { effect: "none" });
        }
        if (trouble === "leaks") {
          throw new TerminalError("AWAY", "mysql://root:hidden@db/shop is away", {
            effect: "none",
          });
        }
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

/** A workflow with a query and an update. */
export const counter = workflow(
  { name: "counter", version: 1, input: z.null(), signals: { add: z.number() } },
  async (ctx) => {
    await ctx.publish("sum", 0);
    return ctx.answer("add", async (n) => n);
  },
);

export const noop = workflow({ name: "noop", version: 1, input: z.null() }, async () => "done");
