/**
 * What is measured. Attributes have few values: never the name of a lock, a sku, the id of a run or the name of a step,
 * which code may make from any of these. There is no end of them, and CloudWatch bills each; spans have them.
 */
export const METRICS = {
  "lockstep.lock.acquire.duration": duration("How long was waited for a lock, by outcome"),
  "lockstep.lock.hold.duration": duration("How long a lock was held, by outcome"),
  "lockstep.lock.contention": counter("{lock}", "Locks that others had for as long as was waited"),
  "lockstep.lock.lost": counter("{lock}", "Locks that were lost while they were held, by reason"),
  "lockstep.fenced_out": counter(
    "{write}",
    "Writes of late holders that were refused, by what has refused them",
  ),
  "lockstep.stock.sold_out": counter(
    "{order}",
    "Sales and reservations that the stock did not reach for",
  ),
  "lockstep.replays": counter(
    "{answer}",
    "What was asked for again, and answered from the records",
  ),
  "lockstep.run.ended": counter("{run}", "Runs that have ended, by workflow and status"),
  "lockstep.step.duration": duration(
    "How long attempts at steps took, by workflow, kind and outcome",
  ),
} as const satisfies Readonly<Record<string, Metric>>;

export type MetricName = keyof typeof METRICS;

export interface Metric {
  readonly type: "histogram" | "counter";

  /** As UCUM has it: seconds, or what is counted. */
  readonly unit: "s" | `{${string}}`;
  readonly description: string;
}

export type Attributes = Readonly<Record<`lockstep.${string}`, string>>;

/** Takes a measurement, in the metric's unit. What it throws is lost. */
export type Measure = (metric: MetricName, value: number, attributes: Attributes) => void;

function duration(description: string): Metric {
  return { type: "histogram", unit: "s", description };
}

function counter(unit: `{${string}}`, description: string): Metric {
  return { type: "counter", unit, description };
}
