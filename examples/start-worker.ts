import { openSqlite } from "lockstep/sqlite";
import { createRuntime, workflow } from "lockstep/steps";
import { runWorker } from "lockstep/worker";
import { z } from "zod";

await using shop = await openSqlite("shop.db");

const sendInvoice = workflow(
  { name: "send-invoice", version: 1, input: z.object({ order: z.string() }) },
  async (ctx, { order }) => {
    const pdf = await ctx.step("print", async () => `invoice of ${order}`);
    // Your mail service, which recognises a repetition by the key.
    await ctx.step("mail", async ({ idempotencyKey }) => `${pdf}, mailed under ${idempotencyKey}`);
  },
);
const runtime = createRuntime({ journal: shop.journal, workflows: [sendInvoice] });

// Anywhere, for example in a request: on record before it is executed, so that no crash loses it.
await runtime.start(sendInvoice, { order: "order-7" }, { id: "invoice-7" });

// In as many processes as you like: each run is executed by one of them.
await runWorker({ runtime, signal: AbortSignal.timeout(500) }); // in production, the signal of SIGTERM
const done = await runtime.run(sendInvoice, { order: "order-7" }, { id: "invoice-7" });
console.log(done.status); // completed
