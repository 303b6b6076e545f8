import { z } from "zod";
import { TerminalError } from "../../core/steps/errors.ts";
import { workflow } from "../../core/steps/workflow.ts";

/** Fails, and cannot undo its step while the environment has UNDO_STUCK. */
export const stuck = workflow({ name: "stuck", version: 1, input: z.null() }, async (ctx) => {
  await ctx.step(
    "reserve",
    async () => "reserved",
    async () => {
      if (process.env.UNDO_STUCK) throw new TerminalError("STUCK");
    },
  );
  throw new TerminalError("SOLD_OUT");
});
