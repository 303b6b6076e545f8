import { LONGEST_VALUE } from "./records.ts";
import type { Compensation, RunResult } from "./runs.ts";

const CHILD = "~child/";

/** The longest result of a child in bytes: its value is escaped, which doubles quotation marks, and has members beside it. */
export const LONGEST_CHILD_RESULT = 2 * LONGEST_VALUE + 1_024;

/** Returns the name of the signal that tells a run the end of a child of this step. */
export function childSignal(stepKey: string): string {
  return CHILD + stepKey;
}

/** Returns the key of the step that a signal belongs to. Undefined for a signal that is no end of a child. */
export function parentStepOf(signal: string): string | undefined {
  return signal.startsWith(CHILD) ? signal.slice(CHILD.length) : undefined;
}

/** Encodes the result of a child run as the payload of the signal to its parent. */
export function encodeChildResult({ status, value, compensated }: Omit<RunResult, "at">): string {
  return JSON.stringify({ status, value, compensated });
}

/** Whether a payload that `encodeChildResult` made is of a completed child. */
export function isCompletedChild(payload: string): boolean {
  return payload.startsWith('{"status":"completed"');
}

/** Decodes the payload that `encodeChildResult` made. */
export function decodeChildResult(payload: string): Omit<RunResult, "at"> {
  return JSON.parse(payload);
}

/** Whether all work of several runs or steps was undone: "no" wins over "unclear", and both over "yes". */
export function worstOf(all: readonly Compensation[]): Compensation {
  if (all.includes("no")) return "no";
  return all.includes("unclear") ? "unclear" : "yes";
}
