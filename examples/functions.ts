import { stockLock } from "lockstep/inventory";
import {
  queueHandler,
  rdsOptions,
  scheduleHandler,
  sweepHandler,
  withSecret,
} from "lockstep/lambda";
import { openMysql } from "lockstep/mysql";
import { createRuntime, workflow } from "lockstep/steps";
import { logTelemetry } from "lockstep/telemetry";
import * as z from "zod";

const shop = withSecret(process.env.SHOP_SECRET ?? "", (json) => openMysql(rdsOptions(json)));

// The module is loaded before a store is open: the steps of a workflow ask for their stores.
const placeOrder = workflow(
  {
    name: "place-order",
    version: 1,
    input: z.object({ id: z.string(), sku: z.string() }),
    id: ({ id }) => id,
    keep: "14d", // as long as SQS may keep a message
  },
  async (ctx, { sku }) =>
    ctx.step.tx(
      "sell",
      { lock: stockLock(sku) },
      async ({ tx, fence, idempotencyKey: operationId }) => {
        const { inventory } = await shop();
        return inventory.within(tx).decrement({ sku, quantity: 1, operationId, fence });
      },
    ),
);

const countStock = workflow(
  { name: "count-stock", version: 1, input: z.object({ day: z.string() }) },
  async (ctx, { day }) => ctx.step("count", async () => `the stock of ${day}`), // your report
);

// A runtime holds no connections: each event gets one, on the database of the moment.
const runtime = async () =>
  createRuntime({
    ...(await shop()),
    ...{ workflows: [placeOrder, countStock], ...logTelemetry().runtime },
  });

export const orders = queueHandler(runtime, placeOrder, { parked: "leave" });
export const daily = scheduleHandler(runtime, countStock, {
  every: "1d",
  input: (slot) => ({ day: slot.toISOString().slice(0, 10) }),
});
export const sweep = sweepHandler(runtime); // each minute: resumes due runs, deletes old ones
