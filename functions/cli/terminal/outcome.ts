import type { RuntimeOptions } from "../../../core/steps/contract.ts";
import { TerminalError } from "../../../core/steps/errors.ts";
import type { RunEvent } from "../../../core/steps/events.ts";
import type { RunOutcome } from "../../../core/steps/workflow.ts";
import { formatDuration } from "../../display/format-duration.ts";
import { formatJson } from "../../display/format-json.ts";
import { outcomeLabel, stepLabel } from "../../display/timeline.ts";
import { errorJson } from "../../json/run-json.ts";
import { EXIT } from "../exit-status.ts";
import { note, print, warn } from "./output.ts";

/** Prints the outcome as one line of JSON and sets the exit status. */
export function reportOutcome(outcome: RunOutcome<unknown>): void {
  print(formatJson("error" in outcome ? { ...outcome, error: errorJson(outcome.error) } : outcome));
  if (outcome.status === "failed") process.exitCode = EXIT.no;
  else if (outcome.status !== "completed") process.exitCode = EXIT.busy;
}

/** Describes the outcome of a run in one line. */
export function describeOutcome(outcome: RunOutcome<unknown>): string {
  if (outcome.status === "failed" || outcome.status === "blocked") {
    const { code, name, message } = outcome.error;
    return `${outcome.status}  ${code ?? name}: ${message}`;
  }
  if (outcome.status !== "suspended") return outcome.status;
  const { reason, wakeIn } = outcome;
  return Number.isFinite(wakeIn) ? `${reason}, for ${formatDuration(wakeIn)}` : reason;
}

/** Shows an error of a run's code with its stack. A TerminalError is an answer: the outcome of the run has it. */
export const showFailure: NonNullable<RuntimeOptions["onError"]> = (error, at) => {
  const { runId, key, attempt } = at;
  if (error instanceof TerminalError) return;
  const place = key === undefined ? "" : `, step ${key}, attempt ${attempt}`;
  const text = error instanceof Error ? (error.stack ?? String(error)) : String(error);
  warn(`run ${runId}${place}: ${text}`);
};

/** Shows the records of a run on a terminal as the run writes them. */
export function showEvent(event: RunEvent): void {
  if (event.type !== "recorded") return;
  const { kind, outcome, took, waited } = event.record;
  if (kind === "step" && outcome === "started") return;
  const durations = [
    ...(took === undefined ? [] : [formatDuration(took)]),
    ...(waited === undefined ? [] : [`waited ${formatDuration(waited)}`]),
  ].join(", ");
  const line = `  ${stepLabel(event.record)}  ${outcomeLabel(event.record)}`;
  note(durations === "" ? line : `${line}  ${durations}`);
}

/** Prints the answer to a call of a run, and sets the exit status. */
export function reportAnswer(answer: string): void {
  print(answer);
  if (answer === "ended") process.exitCode = EXIT.no;
}
