import { runWorker } from "lockstep/worker";
import { runtime } from "./runtime.ts";
import { metrics } from "./telemetry.ts";

/** Executes due runs until the container is stopped: running steps finish, and runs are parked at their next step. */
const stop = new AbortController();
process.once("SIGTERM", () => stop.abort());
process.once("SIGINT", () => stop.abort());
const flushing = setInterval(() => metrics.flush(), 10_000);

const { isClean } = await runWorker({ runtime: await runtime(), signal: stop.signal });

clearInterval(flushing);
metrics.flush();
process.exit(isClean ? 0 : 1);
