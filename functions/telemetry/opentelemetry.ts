import {
  context,
  type Meter,
  type MeterProvider,
  metrics,
  propagation,
  trace,
} from "@opentelemetry/api";
import {
  type Attributes,
  BOUNDARIES,
  METRICS,
  type Measure,
  type MetricName,
  metricTelemetry,
} from "./metrics.ts";
import { spanTelemetry } from "./spans.ts";
import { combineTelemetry, type Telemetry } from "./telemetry.ts";

/** Sends metrics and spans to the OpenTelemetry SDK that the program has registered, if any. */
export function openTelemetry(): Telemetry {
  return combineTelemetry(spanTelemetry(), metricTelemetry(otelMeasure()));
}

/** Wraps an app: the span that a request's headers name becomes the parent of the spans of the request. */
export function continueTraces<Rest extends readonly unknown[], Answer>(app: {
  fetch(request: Request, ...rest: Rest): Answer;
}) {
  const fetch = (request: Request, ...rest: Rest): Answer => {
    const work = () => app.fetch(request, ...rest);
    // An instrumentation of the server has already continued the trace.
    return trace.getActiveSpan() ? work() : continueTrace(request.headers, work);
  };
  return { fetch };
}

/** The headers of a request, or the attributes of a message. */
interface Carrier {
  get(key: string): string | null | undefined;
  keys(): Iterable<string>;
}

/** Calls `work` with the span that the carrier names, if any, as the parent of its spans. */
export function continueTrace<T>(carrier: Carrier, work: () => T): T {
  const parent = propagation.extract(context.active(), carrier, {
    get: (from, key) => from.get(key) ?? undefined,
    keys: (from) => [...from.keys()],
  });
  return context.with(parent, work);
}

type Instrument = (value: number, attributes: Attributes) => void;

/**
 * Measures with the registered SDK, if any.
 *
 * The meter is looked up for each measurement. Unlike a tracer, a meter that is created before the SDK is registered
 * never measures.
 */
function otelMeasure(): Measure {
  let known: MeterProvider | undefined;
  let instruments: ReadonlyMap<MetricName, Instrument> = new Map();
  return (metric, value, attributes) => {
    const provider = metrics.getMeterProvider();
    if (provider !== known) instruments = instrumentsOf(provider);
    known = provider;
    instruments.get(metric)?.(value, attributes);
  };
}

function instrumentsOf(provider: MeterProvider): ReadonlyMap<MetricName, Instrument> {
  const meter = provider.getMeter("lockstep");
  const names = Object.keys(METRICS) as MetricName[];
  return new Map(names.map((name) => [name, instrumentOf(meter, name)]));
}

function instrumentOf(meter: Meter, name: MetricName): Instrument {
  const { type, unit, description } = METRICS[name];
  if (type === "counter") {
    const counter = meter.createCounter(name, { unit, description });
    return (value, attributes) => counter.add(value, attributes);
  }
  // The SDK's default boundaries are for milliseconds.
  const advice = { explicitBucketBoundaries: BOUNDARIES };
  const histogram = meter.createHistogram(name, { unit, description, advice });
  return (value, attributes) => histogram.record(value, attributes);
}
