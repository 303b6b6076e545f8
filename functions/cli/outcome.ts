import type { RunEvent } from "../../core/steps/events.ts";
import type { RunOutcome } from "../../core/steps/workflow.ts";
import { EXIT } from "./exit.ts";
import { toJson } from "./json.ts";
import { note, print } from "./options.ts";
import { spanText } from "./spans.ts";
import { nameOf, whatOf } from "./timeline.ts";

/** One line of JSON, and an exit status that tells a script. */
export function report(outcome: RunOutcome<unknown>): void {
  print(toJson(outcome));
  if (outcome.status === "failed") process.exitCode = EXIT.no;
  else if (outcome.status !== "completed") process.exitCode = EXIT.busy;
}

export function outcomeText(outcome: RunOutcome<unknown>): string {
  if (outcome.status === "failed") {
    const { code, name, message } = outcome.error;
    return `failed  ${code ?? name}: ${message}`;
  }
  if (outcome.status !== "suspended") return outcome.status;
  const { reason, wakeIn } = outcome;
  return Number.isFinite(wakeIn) ? `${reason}, for ${spanText(wakeIn)}` : reason;
}

/** Shows on a terminal what a run does. */
export function showEvent(event: RunEvent): void {
  if (event.type !== "recorded") return;
  const { took, waited } = event.record;
  const spans = [
    ...(took === undefined ? [] : [spanText(took)]),
    ...(waited === undefined ? [] : [`waited ${spanText(waited)}`]),
  ];
  note(
    `  ${nameOf(event.record)}  ${whatOf(event.record)}${spans.length > 0 ? `  ${spans.join(", ")}` : ""}`,
  );
}
