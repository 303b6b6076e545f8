import { measured } from "./measured.ts";
import { meter } from "./meter.ts";
import { spans } from "./spans.ts";
import { type Telemetry, together } from "./telemetry.ts";

export { continued } from "./continued.ts";

/** Metrics and spans for the SDK that the program has registered, if it has. */
export function openTelemetry(): Telemetry {
  return together(spans(), measured(meter()));
}
