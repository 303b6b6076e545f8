import { instrument, sweepHandler } from "lockstep/lambda";
import { runtime } from "./runtime.ts";
import { log, metrics } from "./telemetry.ts";

/** Resumes all due runs, and deletes ended runs after their retention. */
export const handler = instrument(
  sweepHandler(runtime, {
    onError: (run, error) => log("warn", "refused", { run, error }),
  }),
  metrics,
);
