import { queueHandler } from "../queue/queue-handler.ts";
import { log, logOutcome } from "./log.ts";
import { poisonQueue, queue } from "./poison.ts";
import { placeOrder, runtime } from "./services.ts";
import { watched } from "./watched.ts";

/** One run for each order; those that have to wait are left to the sweep. */
export const handler = watched(
  queueHandler(runtime, placeOrder, {
    parked: "leave",
    delay: queue.delay,
    poison: { ...poisonQueue, isPoison: ({ code }) => code !== "SOLD_OUT" },
    onEvent: (event) => log("message", event),
    onOutcome: logOutcome,
  }),
);
