import { openDynamodb } from "lockstep/dynamodb";
import { stockLock } from "lockstep/inventory";
import { createRuntime, TerminalError, workflow } from "lockstep/steps";
import { z } from "zod";

await using shop = await openDynamodb({ region: "eu-west-1", table: "shop" });
const { inventory, journal, locks } = shop;
await inventory.set({ sku: "teapot", quantity: 5, operationId: "count-1" });

const Order = z.object({ id: z.string(), sku: z.string(), quantity: z.int().min(1) });
const placeOrder = workflow(
  { name: "place-order", version: 1, input: Order, id: ({ id }) => id },
  (ctx, { id, sku, quantity }) =>
    ctx.step.tx(
      "sell",
      { lock: stockLock(sku) },
      async ({ tx, fence, idempotencyKey: operationId }) => {
        const answer = await inventory.within(tx).decrement({ sku, quantity, operationId, fence });
        if (answer.outcome !== "applied") throw new TerminalError("SOLD_OUT");
        const Item = { pk: { S: id }, sk: { S: "order" }, sku: { S: sku } };
        await shop.write(tx, { Put: { TableName: "orders", Item } });
        return answer.remaining;
      },
    ),
);

const runtime = createRuntime({ journal, locks });
const outcome = await runtime.run(placeOrder, { id: "order-1", sku: "teapot", quantity: 2 });
console.log(outcome.status, outcome.status === "completed" && outcome.output); // completed 3
