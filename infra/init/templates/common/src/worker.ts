import { runWorker } from "lockstep/worker";
import { runtime } from "./runtime.ts";
import { shop } from "./stores.ts";
import { metrics } from "./telemetry.ts";

/** Executes due runs until the container is stopped: running steps finish, and runs are parked at their next step. */
const stop = new AbortController();
process.once("SIGTERM", () => stop.abort());
process.once("SIGINT", () => stop.abort());
const flushing = setInterval(() => metrics.flush(), 10_000);

/** A rotated secret opens the store anew: this worker ends, and the next one begins with the new store. */
const opened = await shop();
const watching = setInterval(async () => {
  const current = await shop().catch(() => opened);
  if (current !== opened) stop.abort();
}, 60_000);

const { isClean } = await runWorker({ runtime: await runtime(), signal: stop.signal });

clearInterval(flushing);
clearInterval(watching);
metrics.flush();
process.exit(isClean ? 0 : 1);
