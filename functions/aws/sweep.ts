import { sweepHandler } from "../schedule/sweep-handler.ts";
import { log, logOutcome } from "./log.ts";
import { runtime } from "./services.ts";
import { watched } from "./watched.ts";

/** Goes on with all runs that are due, and forgets ended ones. */
export const handler = watched(
  sweepHandler(runtime, {
    onOutcome: logOutcome,
    onError: (runId, error) => log("refused", { run: runId, error }, "warn"),
  }),
);
