import type { StockEvent } from "../../core/inventory/events.ts";
import { hasCode, LockLostError } from "../../core/lock/errors.ts";
import type { LockEvent } from "../../core/lock/events.ts";
import type { NewIncident } from "../../core/lock/incidents.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import type { RunEvent } from "../../core/steps/events.ts";
import { redact } from "../../infra/redact.ts";
import { shownError, shownValue } from "../json/shown-value.ts";
import type { PartialTelemetry } from "./telemetry.ts";

/**
 * Leaves the lost locks and refused writes of this process in a store of locks, whose consoles show them for ten minutes.
 * `locks` is called for each incident; undefined: the store is not open yet.
 *
 * Without an incident, nothing is sent. The writes are made in the background, and their failures are ignored.
 */
export function incidentTelemetry(locks: () => LockStore | undefined) {
  const leave = ({ why, ...incident }: NewIncident) =>
    locks()?.incidents?.leave({ ...incident, why: redact(why) });
  return {
    lock: (event: LockEvent): void => {
      if (event.type !== "lost") return;
      const { names, fences = [], why } = event;
      for (const [i, lock] of names.entries()) {
        const { message } = new LockLostError([lock], why);
        void leave({ kind: "lost", lock, fence: fences[i], why: message });
      }
    },

    stock: (event: StockEvent): void => {
      if (event.type !== "failed" || !hasCode(event.error, "FENCED_OUT")) return;
      const { error, lock, fence, operationId } = event;
      void leave({ kind: "refused", lock, fence, operationId, why: (error as Error).message });
    },

    runtime: {
      onEvent: (event: RunEvent): void => {
        if (event.type !== "recorded") return;
        const { outcome, value, key, fence } = event.record;
        if (outcome !== "retry" && outcome !== "failed") return;
        const own = shownError(value);
        const error = own.code === undefined ? Object(shownValue(value)).error : own;
        if (error?.code !== "FENCED_OUT") return;
        const why = `step ${key}: ${error.message}`;
        void leave({ kind: "refused", run: event.runId, fence, why });
      },
    },
  } satisfies PartialTelemetry;
}
