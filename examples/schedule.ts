import { openSqlite } from "lockstep/sqlite";
import { createRuntime, Schedule, workflow } from "lockstep/steps";
import { runWorker } from "lockstep/worker";
import { z } from "zod";

await using shop = await openSqlite("shop.db");

const timezone = "Europe/Berlin";
const countStock = workflow(
  {
    name: "count-stock",
    version: 1,
    input: z.object({ day: z.string() }),
    schedule: new Schedule("30 6 * * MON-FRI", {
      timezone,
      input: (slot) => ({ day: slot.toLocaleDateString("sv", { timeZone: timezone }) }), // 2026-11-23
    }),
  },
  async (ctx, { day }) => {
    await ctx.step("count", async () => `the stock of ${day}`); // your report
  },
);

const runtime = createRuntime({ journal: shop.journal, workflows: [countStock] });
const worker = await runWorker({ runtime, signal: AbortSignal.timeout(500) }); // in production, the signal of SIGTERM
console.log(worker.isClean); // true
