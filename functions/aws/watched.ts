import type { Context } from "aws-lambda";
import { emf } from "../telemetry/emf.ts";
import { withFields } from "../telemetry/scope.ts";

const { LOCKSTEP_SERVICE, AWS_LAMBDA_FUNCTION_NAME = "function" } = process.env;

/** What all functions of this service measure. */
export const { measure, flush } = emf({
  dimensions: { service: LOCKSTEP_SERVICE || AWS_LAMBDA_FUNCTION_NAME },
});

/** The same handler; its lines in the log have the id of the request, and its metrics are written when it ends. */
export function watched<Event, Result>(
  handler: (event: Event, context: Context) => Promise<Result>,
): (event: Event, context: Context) => Promise<Result> {
  return async (event, context) => {
    try {
      return await withFields({ request: context.awsRequestId }, () => handler(event, context));
    } finally {
      flush();
    }
  };
}
