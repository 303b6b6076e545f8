import { workflow } from "lockstep/steps";
import { z } from "zod";

const Night = z.object({ day: z.iso.date() });

export default workflow(
  { name: "nightly-report", version: 1, input: Night, id: ({ day }) => `nightly-report/${day}` },
  async (ctx, { day }) => {
    await ctx.step("report", async ({ signal }) => {
      signal.throwIfAborted(); // your report, which ends when the signal aborts
      return `the report of ${day}`;
    });
  },
);
