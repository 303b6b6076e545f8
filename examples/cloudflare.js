import { DurableObject } from "cloudflare:workers";
import { lockstepObject } from "lockstep/cloudflare";
import { stockLock } from "lockstep/inventory";
import { workflow } from "lockstep/steps";
import * as z from "zod";

const Order = z.object({ id: z.string() });

const placeOrder = ({ inventory }) =>
  workflow({ name: "place-order", version: 1, input: Order, id: ({ id }) => id }, async (ctx) => {
    const left = await ctx.step.tx(
      "reserve",
      { lock: stockLock("teapot") },
      async ({ tx, fence, idempotencyKey: operationId }) => {
        const order = { sku: "teapot", quantity: 1, operationId, fence };
        return (await inventory.within(tx).decrement(order)).remaining;
      },
    );
    await ctx.sleep("cool down", "2s"); // an alarm wakes the object
    return left;
  });

export class Shop extends lockstepObject(DurableObject) {
  placeOrder = placeOrder(this.store);
  workflows = [this.placeOrder];

  async order(id) {
    const { runId, status } = await this.runtime.start(this.placeOrder, { id });
    return { runId, status };
  }
}

export default {
  async fetch(request, env) {
    const id = request.headers.get("Idempotency-Key") ?? crypto.randomUUID();
    const { pathname } = new URL(request.url);
    if (pathname === "/order") return Response.json(await env.SHOP.getByName("teapots").order(id));
    await using shop = Shop.open(env.SHOP, "teapots");
    const sale = { sku: "teapot", quantity: 1, operationId: id };
    return Response.json(await shop.inventory.decrement(sale));
  },
};
