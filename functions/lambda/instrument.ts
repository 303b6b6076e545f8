import type { Context } from "aws-lambda";
import { withLogFields } from "../telemetry/log.ts";

/**
 * Wraps a handler. Its log lines have the id of the request (`logFields`), and the metrics are flushed when the invocation
 * ends: a frozen environment writes nothing.
 *
 *     const metrics = emf({ dimensions: { service: "shop" } });
 *     export const handler = instrument(async (event: { day: string }) => `report of ${event.day}`, metrics);
 */
export function instrument<Event, Result>(
  handler: (event: Event, context: Context) => Promise<Result>,
  metrics: { flush(): void },
): (event: Event, context: Context) => Promise<Result> {
  return async (event, context) => {
    try {
      return await withLogFields({ request: context?.awsRequestId }, () => handler(event, context));
    } finally {
      metrics.flush();
    }
  };
}
