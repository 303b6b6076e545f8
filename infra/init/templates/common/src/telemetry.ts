import { combineTelemetry, emf, logTelemetry, metricTelemetry } from "lockstep/telemetry";

/** The alarms watch these metrics by the dimension `service`. */
export const metrics = emf({
  dimensions: { service: process.env.LOCKSTEP_SERVICE ?? "my-shop" },
});

/** Writes an event as one line of JSON. */
export function log(level: string, event: string, fields: object): void {
  if (level === "debug") return;
  const line = { at: new Date().toISOString(), level, event, ...fields };
  process.stdout.write(`${JSON.stringify(line, asJson)}\n`);
}

function asJson(_key: string, value: unknown): unknown {
  if (typeof value === "bigint") return String(value);
  if (!(value instanceof Error)) return value;
  return { name: value.name, message: value.message, stack: value.stack };
}

export const telemetry = combineTelemetry(logTelemetry(log), metricTelemetry(metrics.measure));
