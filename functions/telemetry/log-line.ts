import type { ErrorInfo } from "../../core/steps/errors.ts";
import type { RunError, RunOutcome } from "../../core/steps/workflow.ts";
import { redact } from "../../infra/redact.ts";

export type Level = "debug" | "info" | "warn";

export type LogFields = Readonly<Record<string, unknown>>;

/** The most characters of an error's name and message: CloudWatch cuts lines at 256 KB. */
const MAX_TEXT = 2_000;

/**
 * Returns an event as one line of JSON. An error has its name, code and message, with its stack and causes unless it is one
 * of this package; an SQS message has its id, never its body.
 */
export function logLine(level: Level, event: string, fields: object): string {
  const line = { at: new Date().toISOString(), level, event };
  try {
    return JSON.stringify({ ...line, ...fields }, replacer);
  } catch {
    // A property of the error cannot be read or written.
    const { name, message } = Object((fields as LogFields).error);
    return JSON.stringify({ ...line, ...fields, error: { name, message } }, replacer);
  }
}

/** Writes a failure for which the caller has given no listener. */
export function logFailure(event: string, fields: object): void {
  // biome-ignore lint/suspicious/noConsole: every runtime has it, and Lambda adds the id of the request
  console.error(logLine("warn", event, fields));
}

/** The codes of failures that no retry mends. They are no answers of the workflow. */
const FAILURES: ReadonlySet<string | undefined> = new Set([
  ...["RUN_TIMEOUT", "HISTORY_TOO_LONG", "STEP_INTERRUPTED", "NO_LOCKS", "NO_DATABASE"],
  ...["INVALID", "TOO_LARGE", "INPUT_CONFLICT", "FENCED_OUT", "FENCE_INVALID", "LOCK_LOST"],
  ...["STORE_REFUSED", "STORE_CLOSED"],
]);

/** Returns the error of a run that has failed or is blocked. Another TerminalError is an answer of the workflow, such as "sold out". */
export function failureOf(outcome: RunOutcome<unknown>): RunError | undefined {
  if (!("error" in outcome)) return undefined;
  const { status, error } = outcome;
  const { terminal, code }: Partial<ErrorInfo> = error;
  const isAnswer = status === "failed" && terminal && !FAILURES.has(code);
  return isAnswer ? undefined : error;
}

/** Writes the error of a run that has failed or is blocked, without a stack: the journal keeps none. */
export function logFailedRun(outcome: RunOutcome<unknown>): void {
  const { runId, status } = outcome;
  const error = failureOf(outcome);
  if (error) logFailure("run", { runId, status, error });
}

function replacer(key: string, value: unknown): unknown {
  if (value instanceof Error || (key === "error" && typeof value === "object" && value)) {
    return describe(value, MAX_CAUSES);
  }
  if (key === "error" && typeof value === "string") return printable(value);
  if (typeof value === "bigint") return String(value);
  if (key === "record") return (value as { readonly messageId?: unknown }).messageId;
  return value;
}

/** The causes of an error that are logged: a chain may be circular. */
const MAX_CAUSES = 3;

function describe(error: object, causes: number): LogFields {
  const { name, message, code, step, where, stack, cause, retryable } = error as LogFields;
  const isOwn = typeof retryable === "boolean";
  return {
    name: printable(name),
    message: printable(message),
    ...{ code: scalar(code), step: scalar(step), where: scalar(where) },
    ...(typeof stack === "string" && !isOwn && { stack: framesOf(stack) }),
    ...(cause instanceof Error && causes > 0 && { cause: describe(cause, causes - 1) }),
  };
}

/** Returns the stack without the message, which the frames follow. */
function framesOf(stack: string): string {
  return printable(stack.slice(Math.max(0, stack.search(/^ +at /m))));
}

function scalar(value: unknown): unknown {
  return ["string", "number", "undefined"].includes(typeof value) ? value : printable(value);
}

function printable(text: unknown): string {
  return redact(String(text)).slice(0, MAX_TEXT);
}
