import { openMemory } from "lockstep/memory";
import { workflow } from "lockstep/steps";
import { checkReplay, createTestRuntime, exportRun } from "lockstep/testing";
import { z } from "zod";

const Order = z.object({ id: z.string(), price: z.number() });
const signals = { approval: z.object({ by: z.string() }) };

const buy = workflow(
  { name: "buy", version: 1, input: Order, signals, id: ({ id }) => id },
  async (ctx, { price }) => {
    await ctx.sleep("time to think", "14d");
    const { by } = await ctx.waitFor("approval");
    const receipt = await ctx.step("charge", async ({ idempotencyKey }) =>
      charge(price, idempotencyKey),
    );
    return `${receipt}, approved by ${by}`;
  },
);

const { journal } = await openMemory(); // or that of a SQLite file or a MySQL server
const runtime = createTestRuntime({
  journal,
  fake: {
    steps: { charge: () => "receipt 7" },
    signals: { approval: [{ by: "Ada" }] },
  },
});
const bought = await runtime.run(buy, { id: "order-1", price: 20 });
console.log(bought.status === "completed" && bought.output); // receipt 7, approved by Ada

// In production: lockstep runs export order-1 > order-1.json
const history = await exportRun(journal, "order-1");

const changed = workflow({ name: "buy", version: 1, input: Order }, async (ctx, { price }) => {
  await ctx.sleep("time to think", "14d");
  return ctx.step("charge", async ({ idempotencyKey }) => charge(price, idempotencyKey));
});
const { divergence, commands } = await checkReplay(changed, history);
console.log(divergence?.includes('"~signal/approval" was expected, and charge came')); // true
console.log(commands.map(({ state }) => state).join(" ")); // same missing missing

async function charge(price: number, _key: string): Promise<string> {
  throw new Error(`no test may charge ${price}`);
}
