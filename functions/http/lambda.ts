import type { Context } from "aws-lambda";
import { deadlineOf, type ReserveOption, reserveOf } from "../invocation/invocation.ts";
import type { Platform } from "./app.ts";
import { type HttpEvent, type HttpResult, toRequest, toResult } from "./lambda-event.ts";
import { Problem, problemBody } from "./problem.ts";

/** An object with a fetch handler: the app, or an app of yours in which it is mounted. */
export interface FetchApp {
  fetch(request: Request, platform: Platform): Response | Promise<Response>;
}

type HttpHandler = (event: HttpEvent, context: Context) => Promise<HttpResult>;

/**
 * Returns a Lambda handler that serves the app behind an HTTP API of API Gateway (payload 2.0 or 1.0), a function URL, a
 * REST API, or an Application Load Balancer. A named stage, such as "/prod", is no part of the app's paths.
 *
 * A run is parked before the invocation ends; the next request for the run resumes it. The app's `authorize` gets
 * `{ event, context }` as its third argument.
 */
export function httpHandler(app: FetchApp, options: ReserveOption = {}): HttpHandler {
  const reserve = reserveOf(options);
  return async (event, context) => {
    const deadline = deadlineOf(context, reserve);
    const platform = { deadline, event, context };
    const { request, prefix = "" } = toRequest(event) ?? {};
    const response = request ? await app.fetch(request, platform) : badRequest(context);
    return toResult(response, event, prefix);
  };
}

function badRequest({ awsRequestId }: Context): Response {
  const problem = new Problem(400, "MALFORMED", "the event is not a valid HTTP request");
  return new Response(JSON.stringify(problemBody(problem, awsRequestId)), {
    status: problem.status,
    headers: { "content-type": "application/problem+json", "cache-control": "no-store" },
  });
}
