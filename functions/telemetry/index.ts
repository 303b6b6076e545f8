/** Logs, metrics and traces of locks, stock and runs. */

export { type Emf, type EmfOptions, emf } from "./emf.ts";
export { type Level, type Log, logged } from "./logged.ts";
export { measured } from "./measured.ts";
export {
  type Attributes,
  METRICS,
  type Measure,
  type Metric,
  type MetricName,
} from "./metrics.ts";
export { continued, openTelemetry } from "./opentelemetry.ts";
export { type Fields, fieldsHere, withFields } from "./scope.ts";
export { type Telemetry, tellingToo, together } from "./telemetry.ts";
