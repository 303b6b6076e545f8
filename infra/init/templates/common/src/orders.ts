import { instrument, queueHandler, sqs } from "lockstep/lambda";
import { runtime } from "./runtime.ts";
import { metrics } from "./telemetry.ts";
import { placeOrder } from "./workflows.ts";

/** The ARN of the dead-letter queue. */
const { DEAD_LETTERS = "" } = process.env;
const queue = sqs();

/** Executes one run per order. The sweep resumes the runs that have to wait. */
export const handler = instrument(
  queueHandler(runtime, placeOrder, {
    parked: "leave",
    delay: queue.delay,
    poison: {
      // An order that is sold out is answered, not broken.
      isPoison: ({ code }) => code !== "SOLD_OUT",
      to: ({ record }) => queue.forward(DEAD_LETTERS, record),
    },
  }),
  metrics,
);
