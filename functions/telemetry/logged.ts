import type { StockEvent } from "../../core/inventory/observed.ts";
import { hasCode } from "../../core/lock/errors.ts";
import type { LockEvent } from "../../core/lock/events.ts";
import type { RunEvent } from "../../core/steps/events.ts";
import { type Fields, fieldsHere, withFields } from "./scope.ts";
import type { Telemetry } from "./telemetry.ts";

export type Level = "debug" | "info" | "warn";

/** Takes a line of the log: run, step, attempt, lock and fence under these names, where they are known. */
export type Log = (level: Level, what: string, fields: Fields) => void;

/** Writes what happens to a log: what is as it should be about locks and stock only for debugging. */
export function logged(log: Log): Telemetry {
  const write: Log = (level, what, fields) => log(level, what, { ...fieldsHere(), ...fields });
  return {
    lock: (event) => write(levelOfLock(event), `lock ${event.type}`, lockFields(event)),
    stock: (event) => write(levelOfStock(event), `stock ${event.type}`, stockFields(event)),
    runtime: {
      onEvent: (event) => write(levelOfRun(event), `run ${event.type}`, runFields(event)),
      around: {
        run: ({ runId, workflow }, body) => withFields({ run: runId, workflow }, body),
        step: ({ key, attempt }, body) => withFields({ step: key, attempt }, body),
      },
    },
  };
}

function levelOfLock(event: LockEvent): Level {
  const isWrong = ["failed", "lost", "renewal-failed", "release-failed"].includes(event.type);
  return isWrong ? "warn" : "debug";
}

function lockFields({ type, names, fences, ...rest }: LockEvent): Fields {
  return { lock: names.join(" "), ...(fences && { fence: fences.join(" ") }), ...rest };
}

function levelOfStock(event: StockEvent): Level {
  if (event.type === "refused") return hasCode(event.error, "FENCED_OUT") ? "warn" : "info";
  return event.outcome === "applied" ? "debug" : "info";
}

function stockFields({ type, operationId, ...rest }: StockEvent): Fields {
  return { ...rest, ...(operationId !== undefined && { operation: operationId }) };
}

function levelOfRun(event: RunEvent): Level {
  if (event.type === "replayed") return "debug";
  return event.type === "taken" && event.crashes > 0 ? "warn" : "info";
}

/** Of a record all but its value. */
function runFields({ type, runId: run, ...event }: RunEvent): Fields {
  if ("key" in event) return { run, step: event.key };
  if (!("record" in event)) return { run, ...event };
  const { key: step, outcome, attempt, fence, took, waited } = event.record;
  return { run, step, outcome, attempt, fence, took, waited };
}
