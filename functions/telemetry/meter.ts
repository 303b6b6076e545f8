import { type Meter, type MeterProvider, metrics } from "@opentelemetry/api";
import { type Attributes, METRICS, type Measure, type MetricName } from "./metrics.ts";

type Instruments = ReadonlyMap<MetricName, Measuring>;

type Measuring = (value: number, attributes: Attributes) => void;

/**
 * Measures with the SDK that is registered, if any is.
 *
 * Unlike tracers, meters that were asked for before an SDK is registered never measure anything.
 */
export function meter(): Measure {
  let known: MeterProvider | undefined;
  let instruments: Instruments = new Map();
  return (metric, value, attributes) => {
    const provider = metrics.getMeterProvider();
    if (provider !== known) instruments = instrumentsOf(provider);
    known = provider;
    instruments.get(metric)?.(value, attributes);
  };
}

/** In seconds: the default is for milliseconds. */
const BOUNDARIES = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

function instrumentsOf(provider: MeterProvider): Instruments {
  const ours = provider.getMeter("lockstep");
  const names = Object.keys(METRICS) as MetricName[];
  return new Map(names.map((name) => [name, instrumentOf(ours, name)]));
}

function instrumentOf(ours: Meter, name: MetricName): Measuring {
  const { type, unit, description } = METRICS[name];
  if (type === "counter") {
    const counter = ours.createCounter(name, { unit, description });
    return (value, attributes) => counter.add(value, attributes);
  }
  const advice = { explicitBucketBoundaries: BOUNDARIES };
  const histogram = ours.createHistogram(name, { unit, description, advice });
  return (value, attributes) => histogram.record(value, attributes);
}
