import { stockHandler } from "../queue/stock-handler.ts";
import { log } from "./log.ts";
import { poisonQueue, queue } from "./poison.ts";
import { services } from "./services.ts";
import { watched } from "./watched.ts";

/** Less than the queue's visibility timeout: what comes again meets no lock of a process that was killed over it. */
export const LOCK_TTL = 10_000;

/** The orders of a batch, each sku's in one transaction. The answers stand in the inventory's ledger. */
export const handler = watched(
  stockHandler(services, {
    ttl: LOCK_TTL,
    delay: queue.delay,
    poison: poisonQueue,
    onEvent: (event) => log("message", event),
    onAnswer: async (answer) => log("answer", answer),
  }),
);
