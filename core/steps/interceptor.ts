import type { StepRecord } from "../journal/records.ts";
import type { RunOutcome } from "./workflow.ts";

/** A run that was claimed. */
export interface InterceptedRun {
  readonly runId: string;
  readonly workflow: string;

  /** How many processes in a row crashed while they executed the run. */
  readonly crashes: number;
}

/** One attempt of a step, or of the undo of one. */
export interface InterceptedStep {
  readonly runId: string;
  readonly workflow: string;

  /** The name in the workflow's code: the same for all items of a map. */
  readonly name: string;

  /** The key in the journal. */
  readonly key: string;
  readonly kind: "step" | "tx" | "undo";

  /** From 1. */
  readonly attempt: number;
}

/**
 * Hooks around runs and steps, for traces and for other data in the async context. The workflow's code runs inside
 * `run`; a step's locks and code run inside `step`.
 *
 * Each hook calls its body once, synchronously, and settles as the body does. Only the body's result counts. The body
 * of `run` rejects when the lease is lost or the journal fails. The body of `step` rejects when the attempt fails, and
 * with a value that is no Error when the execution stops.
 */
export interface Interceptor {
  run?(run: InterceptedRun, body: () => Promise<RunOutcome<unknown>>): Promise<RunOutcome<unknown>>;
  step?(step: InterceptedStep, body: () => Promise<StepRecord>): Promise<StepRecord>;
}

type Hook<About, Result> = (about: About, body: () => Promise<Result>) => Promise<Result>;

/** Settles as the body does. The body is called once, even if the hook does not call it or fails. */
export async function intercept<About, Result>(
  hook: Hook<About, Result> | undefined,
  about: About,
  body: () => Promise<Result>,
): Promise<Result> {
  if (!hook) return body();
  let result: Promise<Result> | undefined;
  const once = () => {
    result ??= body();
    // A hook that does not await the body would leave its rejection unhandled.
    result.catch(() => {});
    return result;
  };
  await (async () => hook(about, once))().catch(() => {});
  return once();
}
