import { openSqlite } from "lockstep/sqlite";
import { createRuntime, workflow } from "lockstep/steps";
import { z } from "zod";

await using shop = await openSqlite("shop.db");
const Order = z.object({ id: z.string(), amount: z.int() });

const placeOrder = workflow(
  { name: "place-order", version: 1, input: Order, id: ({ id }) => id },
  (ctx, { amount }) =>
    ctx.step("charge", { timeout: "8s" }, async ({ idempotencyKey }) => {
      return `paid ${amount} for ${idempotencyKey.slice(0, 7)}`; // your payment provider
    }),
);
const runtime = createRuntime({ journal: shop.journal, locks: shop.locks });
const outcome = await runtime.run(placeOrder, { id: "order-8", amount: 40 });
console.log(outcome.status); // completed
