import { instrument } from "../lambda/instrument.ts";
import { scheduleHandler } from "../lambda/schedule/schedule-handler.ts";
import { metrics } from "./metrics.ts";
import { runtime, stockReport } from "./runtime.ts";

const skus = (process.env.LOCKSTEP_REPORT_SKUS ?? "").split(",").filter(Boolean);

/** Reports the stock once a day. */
export const handler = instrument(
  scheduleHandler(runtime, stockReport, {
    every: "1d",
    input: (slot) => ({ day: slot.toISOString().slice(0, 10), skus }),
  }),
  metrics,
);
