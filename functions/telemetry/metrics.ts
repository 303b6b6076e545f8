import { StaleRunError } from "../../core/journal/journal.ts";
import { hasCode } from "../../core/lock/errors.ts";
import type { LockEvent } from "../../core/lock/events.ts";
import { elapsedSince, instant, type Millis } from "../../core/lock/time.ts";
import { failureOf, type Telemetry } from "./telemetry.ts";

/**
 * All metrics. Attributes have few values: never the name of a lock, a sku, the id of a run or the name of a step, which
 * code may derive from any of these. Their number has no bound, and CloudWatch bills each value; spans have them.
 */
export const METRICS = {
  "lockstep.lock.acquire.duration": duration("Time of waiting for a lock, by outcome", {
    "lockstep.outcome": ["acquired", "busy", "failed"],
  }),
  "lockstep.lock.hold.duration": duration("Time of holding a lock, by outcome", {
    "lockstep.outcome": ["released", "was-lost", "failed"],
  }),
  "lockstep.lock.contention": counter("{lock}", "Locks that stayed busy for the whole wait"),
  "lockstep.lock.lost": counter("{lock}", "Locks that were lost while they were held, by reason", {
    "lockstep.reason": ["expired", "taken", "max-hold"],
  }),
  "lockstep.fenced_out": counter("{write}", "Refused writes of late holders, by guard", {
    "lockstep.guard": ["fence", "epoch"],
  }),
  "lockstep.stock.sold_out": counter("{order}", "Sales and reservations above the units on hand"),
  "lockstep.replays": counter("{answer}", "Repeated requests that the records answered", {
    "lockstep.subject": ["run", "step", "stock"],
  }),
  "lockstep.run.ended": counter("{run}", "Runs that have ended, by workflow and status", {
    "lockstep.workflow": [],
    "lockstep.outcome": ["completed", "failed", "cancelled"],
  }),
  "lockstep.step.duration": duration(
    "Time of an attempt at a step, by workflow, kind and outcome",
    {
      "lockstep.workflow": [],
      "lockstep.kind": ["step", "tx", "undo"],
      "lockstep.outcome": ["ok", "failed", "parked"],
    },
  ),
} as const satisfies Readonly<Record<string, Metric>>;

/** The boundaries of the histograms' buckets, in seconds. */
export const BOUNDARIES = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
];

export type MetricName = keyof typeof METRICS;

interface Metric {
  readonly type: "histogram" | "counter";

  /** In UCUM: seconds, or the counted thing. */
  readonly unit: "s" | `{${string}}`;
  readonly description: string;

  /** The values of each attribute. None are listed for a workflow, which the program names. */
  readonly attributes: AttributeValues;
}

type AttributeValues = Readonly<Record<`lockstep.${string}`, readonly string[]>>;

export type Attributes = Readonly<Record<`lockstep.${string}`, string>>;

/** Records a measurement in the metric's unit. Errors are ignored. */
export type Measure = (metric: MetricName, value: number, attributes: Attributes) => void;

function duration(description: string, attributes: AttributeValues): Metric {
  return { type: "histogram", unit: "s", description, attributes };
}

function counter(
  unit: `{${string}}`,
  description: string,
  attributes: AttributeValues = {},
): Metric {
  return { type: "counter", unit, description, attributes };
}

/** Measures all events. */
export function metricTelemetry(measure: Measure): Telemetry {
  const count = (metric: MetricName, attributes = {}) => measure(metric, 1, attributes);
  const countReplay = (subject: string) =>
    count("lockstep.replays", { "lockstep.subject": subject });
  const countFencedOut = fencedOutCounter((guard) =>
    count("lockstep.fenced_out", { "lockstep.guard": guard }),
  );
  const countFailure = (thrown: unknown): never => {
    countFencedOut(failureOf(thrown).error);
    throw thrown;
  };
  return {
    lock: (event) => measureLock(measure, event),

    stock(event) {
      if (event.type === "failed") return countFencedOut(event.error);
      if (event.replayed) countReplay("stock");
      else if (event.outcome === "sold-out") count("lockstep.stock.sold_out");
    },

    runtime: {
      onEvent(event) {
        if (event.type === "answered") countReplay("run");
        if (event.type === "replayed") countReplay("step");
        if (event.type === "ended") {
          const { workflow, status } = event;
          count("lockstep.run.ended", {
            "lockstep.workflow": workflow,
            "lockstep.outcome": status,
          });
        }
      },

      interceptor: {
        run: (_, body) => body().catch(countFailure),

        async step({ workflow, kind }, body) {
          const startedAt = instant();
          const measureStep = (outcome: string) =>
            measure("lockstep.step.duration", seconds(elapsedSince(startedAt)), {
              "lockstep.workflow": workflow,
              "lockstep.kind": kind,
              "lockstep.outcome": outcome,
            });
          try {
            const record = await body();
            measureStep(record.outcome);
            return record;
          } catch (thrown) {
            measureStep(failureOf(thrown).outcome);
            return countFailure(thrown);
          }
        },
      },
    },
  };
}

function measureLock(measure: Measure, event: LockEvent): void {
  const outcome = (value: string) => ({ "lockstep.outcome": value });
  if (event.type === "acquired" || event.type === "busy" || event.type === "failed") {
    measure("lockstep.lock.acquire.duration", seconds(event.waited), outcome(event.type));
  }
  if (event.type === "busy") measure("lockstep.lock.contention", 1, {});
  if (event.type === "lost") measure("lockstep.lock.lost", 1, { "lockstep.reason": event.why });
  if (event.type === "released") {
    measure("lockstep.lock.hold.duration", seconds(event.held), outcome(event.answer));
  }
  if (event.type === "release-failed") {
    measure("lockstep.lock.hold.duration", seconds(event.held), outcome("failed"));
  }
}

/** Counts each refusal once: the stock, the step and the run report the same error. */
function fencedOutCounter(count: (guard: "fence" | "epoch") => void): (error: unknown) => void {
  const counted = new WeakSet<object>();
  return (error) => {
    if (!(error instanceof Error) || counted.has(error)) return;
    const isStale = error instanceof StaleRunError;
    if (!isStale && !hasCode(error, "FENCED_OUT")) return;
    counted.add(error);
    count(isStale ? "epoch" : "fence");
  };
}

function seconds(span: Millis): number {
  return span / 1_000;
}
