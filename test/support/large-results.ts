import { z } from "zod";
import { workflow } from "../../core/steps/index.ts";

/** Has 200 steps with a result of 1 MB each. */
export const largeResults = workflow(
  { name: "large-results", version: 1, input: z.object({}), signals: { go: z.object({}) } },
  async (ctx) => {
    let sum = 0;
    for (let i = 0; i < 200; i += 1) {
      const result = await ctx.step("large", async () => "x".repeat(1_000_000));
      sum += result.length;
    }
    await ctx.waitFor("go");
    return sum;
  },
);
