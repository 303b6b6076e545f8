import { z } from "zod";
import { workflow } from "../../../core/steps/workflow.ts";

/** Records when its first step begins, and when the step after its signal does. */
export const ping = workflow({ name: "ping", version: 1, input: z.null() }, async (ctx) => {
  const begun = await ctx.step("begin", async () => Date.now());
  await ctx.waitFor("go", z.null());
  const woken = await ctx.step("wake", async () => Date.now());
  return { begun, woken };
});

/** Returns the process that has executed it. */
export const one = workflow({ name: "one", version: 1, input: z.int() }, (ctx) =>
  ctx.step("work", async () => process.pid),
);

/** Starts as many children as its input says. Returns the number of processes that have executed them. */
export const fan = workflow({ name: "fan", version: 1, input: z.int() }, async (ctx, count) => {
  const numbers = Array.from({ length: count }, (_, n) => n);
  const results = await ctx.children("all", one, numbers, { keyOf: String });
  return new Set(results).size;
});
