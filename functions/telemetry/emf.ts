import { checkFunction, wrongType } from "../../core/lock/checks.ts";
import { listener } from "../../core/lock/listener.ts";
import { checkOptionNames, type OptionNames } from "../../core/lock/options.ts";
import { type Attributes, METRICS, type Measure, type MetricName } from "./metrics.ts";

export interface EmfOptions {
  /** Default "Lockstep". */
  readonly namespace?: string;

  /** The dimensions of every metric. Each metric is also reported with these alone, so alarms need no list of outcomes. */
  readonly dimensions: Readonly<Record<string, string>>;

  /** Default: standard output, which AWS Lambda sends to CloudWatch. */
  readonly write?: (line: string) => void;
}

const OPTIONS = {
  namespace: true,
  dimensions: true,
  write: true,
} satisfies OptionNames<EmfOptions>;

export interface Emf {
  readonly measure: Measure;

  /** Writes the measurements. Call it at the end of each invocation: a frozen environment runs nothing. */
  flush(): void;
}

/** The most values of a metric in one line. */
const MAX_VALUES = 100;

/** The most lines that are buffered without a call of `flush`. */
const MAX_GROUPS = 1_000;

/** Measurements with the same attributes. */
interface Group {
  readonly attributes: Attributes;
  readonly values: Map<MetricName, number[]>;
}

/**
 * Writes metrics as lines in CloudWatch's embedded metric format.
 *
 * Uses no library: @aws-lambda-powertools/metrics and aws-embedded-metrics have one set of dimensions per line, so an
 * outcome would need a line for each value.
 */
export function emf(options: EmfOptions): Emf {
  checkOptionNames("emf", options, OPTIONS);
  const {
    namespace = "Lockstep",
    dimensions,
    write = (line: string) => void process.stdout.write(`${line}\n`),
  }: Partial<EmfOptions> = options ?? {};
  if (typeof dimensions !== "object" || dimensions === null) {
    throw wrongType("dimensions", 'an object such as { service: "shop" }', dimensions);
  }
  checkFunction("write", write);
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
    if (values.length >= MAX_VALUES || groups.size >= MAX_GROUPS) flush();
  }

  function flush(): void {
    const measured = [...groups.values()];
    groups.clear();
    for (const group of measured)
      writeLine(lineOf(namespace, dimensions as EmfOptions["dimensions"], group));
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
    ...Object.fromEntries(members.map(([name, value]) => [name, toDimensionValue(value)])),
    ...Object.fromEntries(values),
  });
}

const UNITS = { histogram: "Seconds", counter: "Count" } as const;

/** CloudWatch takes up to 1,024 characters of printable ASCII, and no blank value. */
function toDimensionValue(value: string): string {
  const text = value.replace(/[^\x20-\x7e]/g, "?").slice(0, 1_024);
  return text.trim() === "" ? "?" : text;
}
