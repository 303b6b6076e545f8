import { z } from "zod";
import { workflow } from "../../core/steps/workflow.ts";
import { pause } from "../support/until.ts";

/** Ten short steps, one after another. */
export default workflow(
  { name: "steady", version: 1, input: z.object({ id: z.string() }), id: ({ id }) => id },
  async (ctx) => {
    let sum = 0;
    for (let i = 0; i < 10; i += 1) {
      sum += await ctx.step(`step ${i}`, async () => {
        await pause(50);
        return 1;
      });
    }
    return sum;
  },
);
