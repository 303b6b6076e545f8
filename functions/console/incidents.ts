import type { StockEvent } from "../../core/inventory/events.ts";
import type { LockEvent } from "../../core/lock/events.ts";
import type { RunEvent } from "../../core/steps/events.ts";
import { redact } from "../../infra/redact.ts";
import { shownError, shownValue } from "../json/shown-value.ts";
import type { PartialTelemetry } from "../telemetry/telemetry.ts";
import type { Incident } from "./shapes.ts";

/** How many incidents are kept. */
const MOST = 200;

/** Keeps the latest lost locks and refused writes of this process. */
export class IncidentLog implements PartialTelemetry {
  readonly #incidents: Incident[] = [];

  /** The latest first. */
  get latest(): readonly Incident[] {
    return this.#incidents.toReversed();
  }

  readonly lock = (event: LockEvent): void => {
    if (event.type !== "lost") return;
    const { names, fences = [], why } = event;
    for (const [i, lock] of names.entries()) {
      this.#add({ kind: "lost", lock, fence: fences[i], text: `the lock was lost: ${why}` });
    }
  };

  readonly stock = (event: StockEvent): void => {
    if (event.type !== "failed") return;
    const { error, lock, fence, operationId, kind } = event;
    if (Object(error).code !== "FENCED_OUT") return;
    const text = `${kind} refused: ${(error as Error).message}`;
    this.#add({ kind: "refused", lock, fence, operationId, text });
  };

  readonly runtime = {
    onEvent: (event: RunEvent): void => {
      if (event.type !== "recorded") return;
      const { outcome, value, key, fence } = event.record;
      if (outcome !== "retry" && outcome !== "failed") return;
      const own = shownError(value);
      const error = own.code === undefined ? Object(shownValue(value)).error : own;
      if (error?.code !== "FENCED_OUT") return;
      const text = `step ${key} refused: ${error.message}`;
      this.#add({ kind: "refused", run: event.runId, fence, text });
    },
  };

  #add(incident: Omit<Incident, "at">): void {
    this.#incidents.push({ ...incident, text: redact(incident.text), at: new Date() });
    if (this.#incidents.length > MOST) this.#incidents.shift();
  }
}
