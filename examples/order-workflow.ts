import { stockLock } from "lockstep/inventory";
import { openSqlite } from "lockstep/sqlite";
import { createRuntime, TerminalError, workflow } from "lockstep/steps";
import { z } from "zod";

await using shop = await openSqlite("shop.db");
const { inventory, journal, locks } = shop;
await inventory.set({ sku: "kettle", quantity: 5, operationId: "count-2" });

const Order = z.object({ id: z.string(), sku: z.string(), quantity: z.int().min(1) });
const placeOrder = workflow(
  { name: "place-order", version: 1, input: Order, id: ({ id }) => id },
  async (ctx, { sku, quantity }) => {
    const left = await ctx.step.tx(
      "reserve",
      { lock: stockLock(sku) },
      async ({ tx, fence, idempotencyKey: operationId }) => {
        const answer = await inventory.within(tx).decrement({ sku, quantity, operationId, fence });
        if (answer.outcome === "sold-out") throw new TerminalError("SOLD_OUT");
        return answer.remaining;
      },
      async (_, { tx, fence, idempotencyKey: operationId }) =>
        inventory.within(tx).restock({ sku, quantity, operationId, fence }),
    );
    const payment = await ctx.step(
      "charge",
      { timeout: "8s" },
      async ({ idempotencyKey, signal }) => charge(quantity * 20, idempotencyKey, signal),
      async (_, { stepIdempotencyKey }) => refund(stepIdempotencyKey),
    );
    return { left, payment };
  },
);

const runtime = createRuntime({ journal, locks });
const outcome = await runtime.run(placeOrder, { id: "order-8", sku: "kettle", quantity: 2 });
console.log(outcome.status, outcome.status === "completed" && outcome.output.left); // completed 3

/** A payment provider, which recognises repetitions by the key. */
async function charge(amount: number, key: string, signal: AbortSignal) {
  signal.throwIfAborted();
  return `paid ${amount} for ${key}`;
}
/** Also called when it is unknown whether the charge was made. */
async function refund(key: string) {
  return `refunded what was paid for ${key}`;
}
