import { instrument, scheduleHandler } from "lockstep/lambda";
import { runtime } from "./runtime.ts";
import { metrics } from "./telemetry.ts";
import { stockReport } from "./workflows.ts";

/** Reports the stock once a day, however often the schedule fires. */
export const handler = instrument(
  scheduleHandler(runtime, stockReport, {
    every: "1d",
    input: (slot) => ({ day: slot.toISOString().slice(0, 10), skus: ["teapot"] }),
  }),
  metrics,
);
