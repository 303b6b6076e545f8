import type { StockEvent } from "../../core/inventory/events.ts";
import { hasCode, LockLostError } from "../../core/lock/errors.ts";
import type { LockEvent } from "../../core/lock/events.ts";
import type { FencedOutError } from "../../core/lock/fence.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { IncidentWriter, type NewIncident } from "./incident-records.ts";
import type { PartialTelemetry } from "./telemetry.ts";

/**
 * Leaves the lost locks and refused writes of this process in a store of locks, whose consoles show them for ten minutes.
 * `locks` is called for each incident; undefined: the store is not open yet.
 *
 * Without an incident, nothing is sent. The writes are made in the background, and their failures are ignored.
 */
export function incidentTelemetry(locks: () => LockStore | undefined) {
  const writer = new IncidentWriter(locks);
  // The stock and the step report the same error.
  const seen = new WeakSet<FencedOutError>();
  const leaveRefusal = (error: unknown, about: Pick<NewIncident, "operationId" | "run">) => {
    if (!hasCode(error, "FENCED_OUT")) return;
    const refusal = error as FencedOutError;
    if (seen.has(refusal)) return;
    seen.add(refusal);
    const { message: why, presented: fence } = refusal;
    void writer.leave({
      kind: "refused",
      ...about,
      lock: fence?.resource,
      fence: fence?.toString(),
      why,
    });
  };
  return {
    lock: (event: LockEvent): void => {
      if (event.type !== "lost") return;
      const { names, fences = [] } = event;
      for (const [i, lock] of names.entries()) {
        const { message: why } = new LockLostError([lock], event.why);
        void writer.leave({ kind: "lost", lock, fence: fences[i], why });
      }
    },

    stock: (event: StockEvent): void => {
      if (event.type === "failed") leaveRefusal(event.error, { operationId: event.operationId });
    },

    runtime: {
      onError: (error: unknown, { runId }: { readonly runId: string }): void =>
        leaveRefusal(error, { run: runId }),
    },
  } satisfies PartialTelemetry;
}
