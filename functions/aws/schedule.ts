import { scheduleHandler } from "../schedule/schedule-handler.ts";
import { runtime, stockReport } from "./services.ts";
import { watched } from "./watched.ts";

const skus = (process.env.LOCKSTEP_REPORT_SKUS ?? "").split(",").filter(Boolean);

/** A report for each day. */
export const handler = watched(
  scheduleHandler(runtime, stockReport, {
    every: "1d",
    input: (slot) => ({ day: slot.toISOString().slice(0, 10), skus }),
  }),
);
