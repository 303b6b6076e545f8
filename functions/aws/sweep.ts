import { instrument } from "../lambda/instrument.ts";
import { sweepHandler } from "../lambda/schedule/sweep-handler.ts";
import { log, logOutcome } from "./log.ts";
import { metrics } from "./metrics.ts";
import { runtime } from "./runtime.ts";

/** Resumes all due runs, and deletes ended runs after their retention. */
export const handler = instrument(
  sweepHandler(runtime, {
    onOutcome: logOutcome,
    onError: (runId, error) => log("refused", { run: runId, error }, "warn"),
  }),
  metrics,
);
