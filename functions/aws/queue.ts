import { instrument } from "../lambda/instrument.ts";
import { queueHandler } from "../lambda/queue/queue-handler.ts";
import { log, logOutcome } from "./log.ts";
import { metrics } from "./metrics.ts";
import { poisonQueue, queue } from "./poison.ts";
import { placeOrder, runtime } from "./runtime.ts";

/** Executes one run per order. The sweep resumes the runs that have to wait. */
export const handler = instrument(
  queueHandler(runtime, placeOrder, {
    parked: "leave",
    delay: queue.delay,
    poison: { ...poisonQueue, isPoison: ({ code }) => code !== "SOLD_OUT" },
    onEvent: (event) => log("message", event),
    onOutcome: logOutcome,
  }),
  metrics,
);
