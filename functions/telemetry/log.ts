import { AsyncLocalStorage } from "node:async_hooks";
import type { StockEvent } from "../../core/inventory/events.ts";
import { hasCode } from "../../core/lock/errors.ts";
import type { LockEvent } from "../../core/lock/events.ts";
import { TerminalError } from "../../core/steps/errors.ts";
import type { RunEvent } from "../../core/steps/events.ts";
import { type Level, type LogFields, logFailure } from "./log-line.ts";
import type { Telemetry } from "./telemetry.ts";

/**
 * Writes a log line. The fields of the current work are called run, workflow, step, attempt, lock and fence. `error` is an
 * error as it was thrown, with its stack.
 */
export type Log = (level: Level, event: string, fields: LogFields) => void;

const context = new AsyncLocalStorage<LogFields>();

/** Adds fields to the log lines of all work in `body`. */
export function withLogFields<T>(fields: LogFields, body: () => T): T {
  return context.run({ ...context.getStore(), ...fields }, body);
}

/** Returns the fields of the current work. */
export function logFields(): LogFields {
  return context.getStore() ?? {};
}

/** Writes warnings to stderr, one line of JSON each, without credentials. */
const logWarnings: Log = (level, event, fields) => {
  if (level === "warn") logFailure(event, fields);
};

/**
 * Logs all events. The ordinary events of locks and stock have the level debug. Without `log`, warnings are written to stderr,
 * one line of JSON each.
 */
export function logTelemetry(log = logWarnings): Telemetry {
  const write: Log = (level, event, fields) => log(level, event, { ...logFields(), ...fields });
  return {
    lock: (event) => write(lockLevel(event), `lock ${event.type}`, lockFields(event)),
    stock: (event) => write(stockLevel(event), `stock ${event.type}`, stockFields(event)),
    runtime: {
      onEvent: (event) => write(runLevel(event), `run ${event.type}`, runFields(event)),
      onError: (error, { runId: run, workflow, key, attempt }) => {
        const step = key !== undefined && { step: key, attempt };
        write(errorLevel(error), "run error", { run, workflow, ...step, error });
      },
      interceptor: {
        run: ({ runId, workflow }, body) => withLogFields({ run: runId, workflow }, body),
        step: ({ key, attempt }, body) => withLogFields({ step: key, attempt }, body),
      },
    },
  };
}

function lockLevel(event: LockEvent): Level {
  const isFailure = ["failed", "lost", "renewal-failed", "release-failed"].includes(event.type);
  return isFailure ? "warn" : "debug";
}

function lockFields({ type, names, fences, ...rest }: LockEvent): LogFields {
  return { lock: names.join(" "), ...(fences && { fence: fences.join(" ") }), ...rest };
}

function stockLevel(event: StockEvent): Level {
  if (event.type === "failed") return hasCode(event.error, "FENCED_OUT") ? "warn" : "info";
  return event.outcome === "applied" ? "debug" : "info";
}

function stockFields({ type, operationId, ...rest }: StockEvent): LogFields {
  return { ...rest, ...(operationId !== undefined && { operation: operationId }) };
}

function runLevel(event: RunEvent): Level {
  if (event.type === "replayed") return "debug";
  if (event.type === "long-history") return "warn";
  return event.type === "taken" && event.takenOver ? "warn" : "info";
}

/** A TerminalError is an answer of the workflow, such as "sold out". */
function errorLevel(error: unknown): Level {
  return error instanceof TerminalError ? "info" : "warn";
}

/** The value of a step's record is not logged. */
function runFields({ type, runId: run, ...event }: RunEvent): LogFields {
  if ("key" in event) return { run, step: event.key };
  if (!("record" in event)) return { run, ...event };
  const { key: step, outcome, attempt, fence, took, waited } = event.record;
  return { run, step, outcome, attempt, fence, took, waited };
}
