import type { AnyWorkflow, WorkflowContext } from "./workflow.ts";

type Fn = (...args: readonly unknown[]) => unknown;

type AnyStep = (name: string, ...rest: readonly unknown[]) => unknown;

/** The functions of a step. */
export interface StepBody {
  readonly fn: Fn;
  readonly undo?: Fn | undefined;
}

/** Returns other functions for the step of this name, or undefined to leave it as it is. */
export type Replace = (name: string, body: StepBody) => StepBody | undefined;

/** Replaces a child, which is an argument of the context's calls. */
type ReplaceChild = (child: AnyWorkflow) => AnyWorkflow;

/** Returns the same workflow with other functions in its steps, and with other children. */
export function withSteps(
  workflow: AnyWorkflow,
  replace: Replace,
  replaceChild: ReplaceChild = (child) => child,
): AnyWorkflow {
  return {
    ...workflow,
    run: (ctx, input) => workflow.run(replaceSteps(ctx, replace, replaceChild), input),
  };
}

function replaceSteps(
  ctx: WorkflowContext,
  replace: Replace,
  replaceChild: ReplaceChild,
): WorkflowContext {
  const replacing =
    (step: AnyStep): AnyStep =>
    (name, ...rest) => {
      const at = rest.findIndex((argument) => typeof argument === "function");
      const body = { fn: rest[at] as Fn, undo: rest[at + 1] as Fn | undefined };
      const other = replace(name, body);
      if (!other) return step(name, ...rest);
      const undo = body.undo && other.undo ? [other.undo] : [];
      return step(name, ...rest.slice(0, at), other.fn, ...undo);
    };
  const step = ctx.step as unknown as AnyStep & { readonly tx: AnyStep; readonly map: AnyStep };
  const more = { tx: replacing(step.tx), map: replacing(step.map) };
  return new Proxy(ctx, {
    get(target, property) {
      if (property === "step") return Object.assign(replacing(step), more);
      const value = Reflect.get(target, property, target);
      if (typeof value !== "function") return value;
      const call: Fn = value.bind(target);
      return (...args: readonly unknown[]) =>
        call(...args.map((one) => (isWorkflow(one) ? replaceChild(one) : one)));
    },
  });
}

function isWorkflow(value: unknown): value is AnyWorkflow {
  return typeof value === "object" && value !== null && "prepare" in value && "namesRuns" in value;
}
