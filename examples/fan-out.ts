import { openSqlite } from "lockstep/sqlite";
import { createRuntime, workflow } from "lockstep/steps";
import { z } from "zod";

await using shop = await openSqlite("shop.db");

const Invoice = z.object({ customer: z.string(), amount: z.int() });
const sendInvoice = workflow(
  { name: "send-invoice", version: 1, input: Invoice },
  async (ctx, { customer, amount }) => {
    await ctx.step("send", async ({ idempotencyKey }) => {
      return `${customer} pays ${amount}, ${idempotencyKey}`; // your mail provider
    });
    return amount;
  },
);

const Month = z.object({ invoices: z.array(Invoice) });
const closeMonth = workflow(
  { name: "close-month", version: 1, input: Month },
  async (ctx, { invoices }) => {
    const amounts = await ctx.children("invoices", sendInvoice, invoices, {
      keyOf: ({ customer }) => customer,
      concurrency: 50,
    });
    return amounts.reduce((sum, amount) => sum + amount, 0);
  },
);

const runtime = createRuntime({ journal: shop.journal, workflows: [closeMonth, sendInvoice] });
const invoices = ["ann", "bob", "cid"].map((customer) => ({ customer, amount: 10 }));
const outcome = await runtime.run(closeMonth, { invoices }, { id: "2026-11" });
console.log(outcome.status === "completed" && outcome.output); // 30
