import { appendFileSync } from "node:fs";
import { z } from "zod";
import { entity } from "../../core/steps/entity/entity.ts";
import { workflow } from "../../core/steps/workflow.ts";
import type { WorkflowServices } from "../../functions/worker/workflow-module.ts";
import { pause } from "../support/until.ts";

/** Appends events to the file that the environment names. */
function say(line: string): void {
  appendFileSync(process.env.PATIENT_LOG as string, `${line}\n`);
}

/** How often each run was told of. */
export const visits = entity({ name: "visits", state: z.int(), initial: 0 }, (on) => ({
  add: on(z.int(), async ({ state }, n) => ({ state: state + n })),
}));

const Input = z.object({ id: z.string(), millis: z.number() });

export default ({ locks }: WorkflowServices) => [
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
];
