import { listener } from "../../core/lock/listener.ts";
import { type Attributes, METRICS, type Measure, type MetricName } from "./metrics.ts";

export interface EmfOptions {
  /** Default "Lockstep". */
  readonly namespace?: string;

  /** What every metric has. By these alone each metric is there too: alarms need no list of outcomes. */
  readonly dimensions: Readonly<Record<string, string>>;

  /** Default: standard output, which AWS Lambda hands over to CloudWatch. */
  readonly write?: (line: string) => void;
}

export interface Emf {
  readonly measure: Measure;

  /** Writes down what was measured: at the end of each invocation, since nothing runs while it is frozen. */
  flush(): void;
}

/** The most values of a metric in one line. */
const MOST_VALUES = 100;

/** The most lines that are kept, where nobody calls `flush`. */
const MOST_GROUPS = 1_000;

/** Measurements with the same attributes. */
interface Group {
  readonly attributes: Attributes;
  readonly values: Map<MetricName, number[]>;
}

/**
 * Metrics as lines in CloudWatch's embedded metric format.
 *
 * Not by a library: @aws-lambda-powertools/metrics and aws-embedded-metrics keep one set of dimensions for all
 * metrics of a line, so that an outcome takes a line for each single value.
 */
export function emf({
  namespace = "Lockstep",
  dimensions,
  write = (line) => void process.stdout.write(`${line}\n`),
}: EmfOptions): Emf {
  const groups = new Map<string, Group>();
  const writeLine = listener(write);

  function measure(metric: MetricName, value: number, attributes: Attributes): void {
    const key = JSON.stringify(attributes);
    const group = groups.get(key) ?? { attributes, values: new Map() };
    groups.set(key, group);
    const values = group.values.get(metric) ?? [];
    group.values.set(metric, values);
    if (METRICS[metric].type === "counter") values[0] = (values[0] ?? 0) + value;
    else values.push(value);
    if (values.length >= MOST_VALUES || groups.size >= MOST_GROUPS) flush();
  }

  function flush(): void {
    const measured = [...groups.values()];
    groups.clear();
    for (const group of measured) writeLine(lineOf(namespace, dimensions, group));
  }

  return { measure, flush };
}

function lineOf(
  namespace: string,
  dimensions: EmfOptions["dimensions"],
  { attributes, values }: Group,
): string {
  const [common, own] = [Object.keys(dimensions), Object.keys(attributes)];
  const members = Object.entries<string>({ ...dimensions, ...attributes });
  const Metrics = [...values.keys()].map((Name) => ({ Name, Unit: UNITS[METRICS[Name].type] }));
  const Dimensions = own.length === 0 ? [common] : [common, [...common, ...own]];
  const directive = { Namespace: namespace, Dimensions, Metrics };
  return JSON.stringify({
    _aws: { Timestamp: Date.now(), CloudWatchMetrics: [directive] },
    ...Object.fromEntries(members.map(([name, value]) => [name, plain(value)])),
    ...Object.fromEntries(values),
  });
}

const UNITS = { histogram: "Seconds", counter: "Count" } as const;

/** CloudWatch takes no other characters, no more of them, and nothing blank. */
function plain(value: string): string {
  const text = value.replace(/[^\x20-\x7e]/g, "?").slice(0, 1_024);
  return text.trim() === "" ? "?" : text;
}
