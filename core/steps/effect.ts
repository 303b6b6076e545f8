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

/**
 * Returns what the records tell. One unknown attempt makes the step unknown, unless a later attempt is done or undone, also
 * when a retry of the run has superseded it.
 */
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
  if (await mayHaveHadEffect(history.supersededOf(key), errorOf)) return "unknown";
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

/** Whether attempts that a retry of the run has superseded may have had an effect, and it was not undone. */
export async function mayHaveHadEffect(
  superseded: readonly StepRecord[],
  errorOf: ExecutionFacts["errorOf"],
): Promise<boolean> {
  let isUnknown = false;
  let started: StepRecord | undefined;
  for (const record of superseded) {
    const { kind, outcome } = record;
    if (kind === "undo" && outcome !== "ok") continue;
    if (outcome === "ok") isUnknown = false;
    else if (outcome !== "started") isUnknown ||= await mayHaveEffect(started, record, errorOf);
    started = outcome === "started" ? record : undefined;
  }
  return isUnknown || started !== undefined;
}

/** Whether a retry of the run has superseded an attempt of the step of which only the start is known. */
export function wasInterrupted(superseded: readonly StepRecord[]): boolean {
  const last = superseded.findLast(({ kind, outcome }) => kind !== "undo" || outcome === "ok");
  return last?.outcome === "started";
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
