import { instrument } from "../lambda/instrument.ts";
import { stockHandler } from "../lambda/queue/stock-handler.ts";
import { log } from "./log.ts";
import { metrics } from "./metrics.ts";
import { poisonQueue, queue } from "./poison.ts";
import { services } from "./services.ts";

/** Less than the queue's visibility timeout: a message is redelivered after the lock of a killed process has expired. */
export const LOCK_TTL = 10_000;

/** Sells to the orders of a batch, one transaction per sku. The inventory's ledger has the results. */
export const handler = instrument(
  stockHandler(services, {
    ttl: LOCK_TTL,
    delay: queue.delay,
    poison: poisonQueue,
    onEvent: (event) => log("message", event),
    onAnswer: async (result) => log("answer", result),
  }),
  metrics,
);
