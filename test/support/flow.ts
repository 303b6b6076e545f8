import { z } from "zod";
import { type Schema, type WorkflowContext, workflow } from "../../core/steps/index.ts";
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

function named() {
  count += 1;
  return { name: `flow-${process.pid}-${count}`, version: 1, input: Input };
}
