/**
 * Helpers for testing workflows.
 *
 * Time: a runtime with `skipPauses` sleeps no time at all. The memory journal, the memory store and the engine use
 * `setTimeout`, `performance.now` and `Date` alone, so that the fake timers of a test runner move them.
 */
export { type OnPoint, pointed } from "./points.ts";

import type { StepScope, Workflow, WorkflowContext } from "./workflow.ts";

/** Called right before each attempt at a step: what it throws is what the attempt fails with. */
export type Fault = (scope: StepScope) => unknown;

/**
 * The same workflow, with something going wrong: faults by the names of the steps. A fault may also end the process:
 * `charge: () => process.kill(process.pid, "SIGKILL")`.
 */
export function withFaults<I, O>(
  workflow: Workflow<I, O>,
  faults: Readonly<Record<string, Fault>>,
): Workflow<I, O> {
  return {
    ...workflow,
    prepare: (input, id) => workflow.prepare(input, id),
    run: (ctx, input) => workflow.run(faulty(ctx, faults), input),
  };
}

type AnyStep = (name: string, ...rest: readonly unknown[]) => unknown;

function faulty(ctx: WorkflowContext, faults: Readonly<Record<string, Fault>>): WorkflowContext {
  const breaking =
    (step: AnyStep): AnyStep =>
    (name, ...rest) => {
      const fault = Object.hasOwn(faults, name) ? faults[name] : undefined;
      if (!fault) return step(name, ...rest);
      const at = rest.findIndex((argument) => typeof argument === "function");
      const fn = rest[at] as (...scope: readonly unknown[]) => unknown;
      // The scope is the last argument, with and without an item before it.
      const broken = async (...args: readonly unknown[]) => {
        await fault(args.at(-1) as StepScope);
        return fn(...args);
      };
      return step(name, ...rest.with(at, broken));
    };
  const step = ctx.step as unknown as AnyStep & { readonly tx: AnyStep; readonly map: AnyStep };
  const more = { tx: breaking(step.tx), map: breaking(step.map) };
  return new Proxy(ctx, {
    get(target, property) {
      if (property === "step") return Object.assign(breaking(step), more);
      const value = Reflect.get(target, property, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}
