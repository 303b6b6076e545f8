import type { RunOutcome } from "../../core/steps/workflow.ts";
import { logFields } from "../telemetry/log.ts";
import { type Level, type LogFields, logLine } from "../telemetry/log-line.ts";

const LEVELS: readonly Level[] = ["debug", "info", "warn"];

/** The level in LOCKSTEP_LOG: debug, info or warn. Default, also for other values: info. */
const minLevel = LEVELS.indexOf(
  LEVELS.find((level) => level === process.env.LOCKSTEP_LOG) ?? "info",
);

/** Writes an event as one line of JSON, with the fields of the current work: request, run, step. */
export function log(event: string, fields: object, level: Level = "info"): void {
  if (LEVELS.indexOf(level) < minLevel) return;
  process.stdout.write(`${logLine(level, event, { ...logFields(), ...fields })}\n`);
}

/** Logs the outcome of a run, without its output. */
export function logOutcome({ runId: run, status, ...outcome }: RunOutcome<unknown>): void {
  const { output: _, ...rest } = outcome as LogFields;
  log("outcome", { run, status, ...rest });
}
