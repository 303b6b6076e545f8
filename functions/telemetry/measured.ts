import { StaleRunError } from "../../core/journal/journal.ts";
import { hasCode } from "../../core/lock/errors.ts";
import type { LockEvent } from "../../core/lock/events.ts";
import { elapsedSince, instant, type Millis } from "../../core/lock/time.ts";
import type { RunEvent } from "../../core/steps/events.ts";
import { endingOf } from "./ending.ts";
import type { Measure, MetricName } from "./metrics.ts";
import type { Telemetry } from "./telemetry.ts";

/** Measures what happens. */
export function measured(measure: Measure): Telemetry {
  const one = (metric: MetricName, attributes = {}) => measure(metric, 1, attributes);
  const refused = fencedOut((guard) => one("lockstep.fenced_out", { "lockstep.guard": guard }));
  const replayed = (what: string) => one("lockstep.replays", { "lockstep.what": what });
  return {
    lock: (event) => measureLock(measure, event),

    stock(event) {
      if (event.type === "refused") return refused(event.error);
      if (event.replayed) replayed("stock");
      else if (event.outcome === "sold-out") one("lockstep.stock.sold_out");
    },

    runtime: {
      onEvent(event: RunEvent) {
        if (event.type === "answered") replayed("run");
        if (event.type === "replayed") replayed("step");
        if (event.type === "ended") {
          const { workflow, status } = event;
          one("lockstep.run.ended", { "lockstep.workflow": workflow, "lockstep.outcome": status });
        }
      },

      around: {
        run: (_, body) => body().catch((thrown) => rethrow(thrown, refused)),

        async step({ workflow, kind }, body) {
          const startedAt = instant();
          const took = (outcome: string) =>
            measure("lockstep.step.duration", seconds(elapsedSince(startedAt)), {
              "lockstep.workflow": workflow,
              "lockstep.kind": kind,
              "lockstep.outcome": outcome,
            });
          try {
            const record = await body();
            took(record.outcome);
            return record;
          } catch (thrown) {
            took(endingOf(thrown).outcome);
            return rethrow(thrown, refused);
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

/** Counts each refusal once: the same error comes from the stock, then from the step, and then from the run. */
function fencedOut(count: (guard: "fence" | "epoch") => void): (error: unknown) => void {
  const counted = new WeakSet<object>();
  return (error) => {
    if (!(error instanceof Error) || counted.has(error)) return;
    const isStale = error instanceof StaleRunError;
    if (!isStale && !hasCode(error, "FENCED_OUT")) return;
    counted.add(error);
    count(isStale ? "epoch" : "fence");
  };
}

function rethrow(thrown: unknown, look: (error: unknown) => void): never {
  look(endingOf(thrown).error);
  throw thrown;
}

function seconds(span: Millis): number {
  return span / 1_000;
}
