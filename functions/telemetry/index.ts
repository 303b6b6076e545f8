/** Logs, metrics and traces of locks, stock and runs. */
export { type Emf, emf } from "./emf.ts";
export { logFields, logTelemetry, withLogFields } from "./log.ts";
export { METRICS, type Measure, metricTelemetry } from "./metrics.ts";
export { continueTraces, openTelemetry } from "./opentelemetry.ts";
export { combineTelemetry, type Telemetry } from "./telemetry.ts";
