import type { RunOutcome } from "../../core/steps/workflow.ts";
import { redact } from "../../infra/redact.ts";
import type { Level } from "../telemetry/log.ts";
import { type LogFields, logFields } from "../telemetry/log.ts";

const LEVELS: readonly Level[] = ["debug", "info", "warn"];

/** The level in LOCKSTEP_LOG: debug, info or warn. Default, also for other values: info. */
const minLevel = LEVELS.indexOf(
  LEVELS.find((level) => level === process.env.LOCKSTEP_LOG) ?? "info",
);

/** The most characters of an error's name and message: CloudWatch cuts lines at 256 KB. */
const MAX_TEXT = 2_000;

/**
 * Writes an event as one line of JSON, with the fields of the current work: request, run, step. An error is logged by
 * name, code and message, with its stack and causes unless the error is one of this package; an SQS message by its id,
 * never with its body.
 */
export function log(event: string, fields: object, level: Level = "info"): void {
  if (LEVELS.indexOf(level) < minLevel) return;
  const known = { at: new Date().toISOString(), level, event, ...logFields() };
  process.stdout.write(`${JSON.stringify({ ...known, ...fields }, replacer)}\n`);
}

/** Logs the outcome of a run, without its output. */
export function logOutcome({ runId: run, status, ...outcome }: RunOutcome<unknown>): void {
  const { output: _, ...rest } = outcome as LogFields;
  log("outcome", { run, status, ...rest });
}

function replacer(key: string, value: unknown): unknown {
  if (value instanceof Error || (key === "error" && typeof value === "object" && value)) {
    return describe(value, MAX_CAUSES);
  }
  if (typeof value === "bigint") return String(value);
  if (key === "record") return (value as { readonly messageId?: unknown }).messageId;
  return value;
}

/** The causes of an error that are logged: a chain may be circular. */
const MAX_CAUSES = 3;

function describe(error: object, causes: number): LogFields {
  const { name, message, code, stack, cause, retryable } = error as LogFields;
  const isOwn = typeof retryable === "boolean";
  return {
    name: printable(name),
    message: printable(message),
    code,
    ...(typeof stack === "string" && !isOwn && { stack: framesOf(stack) }),
    ...(cause instanceof Error && causes > 0 && { cause: describe(cause, causes - 1) }),
  };
}

/** Returns the stack without the message, which the frames follow. */
function framesOf(stack: string): string {
  return printable(stack.slice(Math.max(0, stack.search(/^ +at /m))));
}

function printable(text: unknown): string {
  return redact(String(text)).slice(0, MAX_TEXT);
}
