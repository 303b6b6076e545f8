import { z } from "zod";
import {
  type Runtime,
  type Schema,
  type WorkflowContext,
  workflow,
} from "../../core/steps/index.ts";
import type { WorkflowDefinition } from "../../core/steps/workflow.ts";

type Body = (ctx: WorkflowContext, input: { n: number }) => Promise<unknown>;

export const Input = z.object({ n: z.number() });
let count = 0;

/** Makes a workflow with a name of its own. */
export function flow(body: Body, more: Partial<WorkflowDefinition<typeof Input>> = {}) {
  return workflow({ ...named(), ...more }, body);
}

/** Makes a workflow with declared signals. */
export function signalled<Signals extends Readonly<Record<string, Schema>>>(
  signals: Signals,
  body: (ctx: WorkflowContext<Signals>) => Promise<unknown>,
) {
  return workflow({ ...named(), signals }, body);
}

/** Parks the run until `resume`: what follows is executed by a replay, however slow the machine is. */
export async function untilResumed(ctx: WorkflowContext): Promise<void> {
  await ctx.waitFor("resume", z.literal(true));
}

/** Lets a run go on that is parked by `untilResumed`. */
export async function resume(runtime: Runtime, runId: string): Promise<void> {
  await runtime.signal(runId, "resume", true, { dedupeId: "resume" });
}

function named() {
  count += 1;
  return { name: `flow-${process.pid}-${count}`, version: 1, input: Input };
}
