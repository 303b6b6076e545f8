import { appendFileSync } from "node:fs";
import { z } from "zod";
import { workflow } from "../../core/steps/workflow.ts";
import type { KeyedRun } from "../../functions/worker/keys.ts";
import type { Services } from "../../functions/worker/program.ts";
import { pause } from "../support/until.ts";

/** Takes note of what happens in the file that the environment names. */
function say(line: string): void {
  appendFileSync(process.env.PATIENT_LOG as string, `${line}\n`);
}

const Input = z.object({ id: z.string(), millis: z.number() });

export const keyOf = ({ workflow: name }: KeyedRun) => (name === "alone" ? "alone" : undefined);

export default ({ locks }: Services) => [
  workflow(
    { name: "patient", version: 1, input: Input, id: ({ id }) => id },
    async (ctx, { id, millis }) => {
      await ctx.step("first", { lock: "bench" }, async ({ signal }) => {
        say(`${id} begins, ${(await locks.list("bench")).length} held`);
        signal.addEventListener("abort", () => say(`${id} aborted`));
        await pause(millis);
        say(`${id} first`);
      });
      await ctx.step("second", async () => say(`${id} second`));
    },
  ),
  workflow({ name: "alone", version: 1, input: Input, id: ({ id }) => id }, (ctx, { id, millis }) =>
    ctx.step("only", async () => {
      say(`${id} in`);
      await pause(millis);
      say(`${id} out`);
    }),
  ),
];
