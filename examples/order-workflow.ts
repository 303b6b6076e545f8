import { stockLock } from "lockstep/inventory";
import { openSqlite } from "lockstep/sqlite";
import { createRuntime, TerminalError, workflow } from "lockstep/steps";
import { runWorker } from "lockstep/worker";
import { z } from "zod";

await using shop = await openSqlite("shop.db");
const { inventory, journal, locks } = shop;
await inventory.set({ sku: "kettle", quantity: 5, operationId: "count-2" });

const Order = z.object({ id: z.string(), sku: z.string(), quantity: z.int().min(1) });
const placeOrder = workflow(
  { name: "place-order", version: 1, input: Order, id: ({ id }) => id },
  async (ctx, { id, sku, quantity }) => {
    const left = await ctx.step.tx(
      "sell",
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
      "prepare",
      { effect: "none" },
      async ({ idempotencyKey }) => prepare(quantity * 20, idempotencyKey),
      async (prepared) => prepared && refund(prepared),
    );
    await ctx.step(
      "charge",
      { timeout: "8s" },
      async ({ signal }) => confirm(payment, signal),
      async () => refund(payment),
    );
    const parcel = await ctx.step(
      "ship",
      { retry: { attempts: 150, max: "10m" } }, // the carrier may be away for half a day
      async ({ idempotencyKey }) => ship(id, idempotencyKey),
    );
    return `${left} left, ${parcel}`;
  },
);

const runtime = createRuntime({ journal, locks, workflows: [placeOrder] });
const order = { id: "order-8", sku: "kettle", quantity: 2 };
await runtime.start(placeOrder, order); // before you answer the buyer: no crash loses it from now on

const stop = new AbortController(); // in production: process.once("SIGTERM", () => stop.abort())
const worker = runWorker({ runtime, signal: stop.signal }); // in as many processes as you like
const outcome = await runtime.run(placeOrder, order);
console.log(outcome.status === "completed" && outcome.output); // 3 left, order-8 is under way
stop.abort();
await worker;

/** Your payment provider makes a payment that moves no money yet, one per key. */
async function prepare(amount: number, _key: string) {
  return `payment of ${amount}`;
}
/** Moves the money, under a key made of its id. Declined: throw new TerminalError("DECLINED", "no money", { effect: "none" }). */
async function confirm(payment: string, signal: AbortSignal) {
  signal.throwIfAborted();
  return `${payment} is confirmed`;
}
/** Cancels the payment. If it is confirmed already, refunds it, under another key made of its id. Still processing: throw. */
async function refund(payment: string) {
  return `${payment} is back`;
}
async function ship(id: string, _key: string) {
  return `${id} is under way`;
}
