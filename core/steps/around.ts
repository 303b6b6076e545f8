import type { StepRecord } from "../journal/journal.ts";
import type { RunOutcome } from "./workflow.ts";

/** A run that has been taken. */
export interface CarriedRun {
  readonly runId: string;
  readonly workflow: string;

  /** How often a process was lost over it. */
  readonly crashes: number;
}

/** One attempt at a step, or at undoing one. */
export interface CarriedStep {
  readonly runId: string;
  readonly workflow: string;

  /** As the workflow's code calls it: the same for all items of a map. */
  readonly name: string;

  /** As the journal calls it. */
  readonly key: string;
  readonly kind: "step" | "tx" | "undo";

  /** From 1. */
  readonly attempt: number;
}

/**
 * Around what is carried: for traces, and for whatever else goes with the asynchronous context. The workflow's code
 * runs inside of `run`, and a step's locks and code inside of `step`.
 *
 * Each calls its body once, at once, and settles as that does; whatever else it does, what the body comes to counts. The
 * body of `run` rejects when the run is lost or the journal fails; that of `step` when the attempt fails, and with what
 * is no Error when the run is let go of.
 */
export interface Around {
  run?(run: CarriedRun, body: () => Promise<RunOutcome<unknown>>): Promise<RunOutcome<unknown>>;
  step?(step: CarriedStep, body: () => Promise<StepRecord>): Promise<StepRecord>;
}

type Hook<About, Result> = (about: About, body: () => Promise<Result>) => Promise<Result>;

/** The body's own outcome: the body is called once, and what is wrong with the hook around it costs nothing. */
export async function within<About, Result>(
  hook: Hook<About, Result> | undefined,
  about: About,
  body: () => Promise<Result>,
): Promise<Result> {
  if (!hook) return body();
  let begun: Promise<Result> | undefined;
  const once = () => {
    begun ??= body();
    // A hook that does not wait for it would leave its rejection unhandled.
    begun.catch(() => {});
    return begun;
  };
  await (async () => hook(about, once))().catch(() => {});
  return once();
}
