import { z } from "zod";
import { Codec } from "../../core/steps/codecs.ts";
import { TerminalError } from "../../core/steps/errors.ts";
import { workflow } from "../../core/steps/workflow.ts";

const keys = { "2025": new Uint8Array(32).fill(7) };

export const codec = Codec.encrypted({ keys, current: "2025" });

/** A workflow whose values nobody reads without the codec. */
export const sealed = workflow(
  { name: "sealed", version: 1, input: z.object({ card: z.string() }) },
  async (ctx, { card }) => {
    await ctx.publish("card", card);
    await ctx.step("charge", async () => {
      throw new TerminalError("NO", `${card} was declined`);
    });
  },
);
