import type { StepRecord } from "../journal/records.ts";
import type { ErrorInfo } from "./errors.ts";
import type { History } from "./history.ts";
import type { Step } from "./step.ts";
import { attemptKey } from "./step-keys.ts";

/**
 * What is known of a step's effect. `done`: its result is recorded. `not-done`: no attempt has begun, each one was rolled
 * back, or its error said so. `unknown`: an attempt began, and may have had its effect.
 */
export type StepEffect = "done" | "unknown" | "not-done";

/** Returns what the records tell. One unknown attempt makes the step unknown, unless a later attempt is done. */
export async function effectOf(
  step: Step,
  history: History,
  { epoch, errorOf }: ExecutionFacts,
): Promise<StepEffect> {
  const { key } = step;
  const final = history.record(key);
  if (final?.outcome === "ok") return "done";
  if (step.transacted || step.readOnly) return "not-done";
  if (history.hasBegun(key)) return "unknown";
  for (let number = 1; ; number += 1) {
    const started = history.record(attemptKey(key, "started", number));
    const isLast = final?.attempt === number;
    const ended = isLast ? final : history.record(attemptKey(key, "retry", number));
    // This execution has recorded a start, and was stopped before the call.
    const isMere = started?.epoch === epoch && !ended;
    if ((!started && !ended) || isMere) return "not-done";
    if (await mayHaveEffect(started, ended, errorOf)) return "unknown";
  }
}

interface ExecutionFacts {
  readonly epoch: bigint;

  /** Reads the error of a failed attempt. */
  readonly errorOf: (record: StepRecord) => Promise<ErrorInfo>;
}

/** An attempt that ended in another execution than it started in was interrupted, and repeated. */
async function mayHaveEffect(
  started: StepRecord | undefined,
  ended: StepRecord | undefined,
  errorOf: ExecutionFacts["errorOf"],
): Promise<boolean> {
  if (!ended || (started && started.epoch !== ended.epoch)) return true;
  return (await errorOf(ended)).effect !== "none";
}
