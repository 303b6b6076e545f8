import { instrument, sweepHandler } from "lockstep/lambda";
import { runtime } from "./runtime.ts";
import { metrics } from "./telemetry.ts";

/** Resumes all due runs, and deletes ended runs after their retention. */
export const handler = instrument(sweepHandler(runtime), metrics);
