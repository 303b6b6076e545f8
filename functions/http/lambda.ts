import type { Context } from "aws-lambda";
import { checkFunction } from "../../core/lock/checks.ts";
import { checkOptionNames, type OptionNames } from "../../core/lock/options.ts";
import { deadlineOf, type ReserveOption, reserveOf } from "../invocation/invocation.ts";
import type { App, Platform } from "./app.ts";
import {
  appRequest,
  type EventRequest,
  type EventResponse,
  eventRequest,
  type HttpEvent,
  type HttpResult,
  toRequest,
  toResult,
} from "./lambda-event.ts";
import { Problem, problemBody } from "./problem.ts";

/** An object with a fetch handler: the app, or an app of yours in which it is mounted. */
export interface FetchApp {
  fetch(request: Request, platform: Platform): Response | Promise<Response>;
}

type HttpHandler = (event: HttpEvent, context: Context) => Promise<HttpResult>;

const OPTIONS = { reserve: true } satisfies OptionNames<ReserveOption>;

/**
 * Returns a Lambda handler that serves the app behind an HTTP API of API Gateway (payload 2.0 or 1.0), a function URL, a
 * REST API, or an Application Load Balancer. A named stage, such as "/prod", is no part of the app's paths.
 *
 * A run is parked before the invocation ends; the next request for the run resumes it. The app's `authorize` gets
 * `{ event, context }` as its third argument.
 */
export function httpHandler(app: FetchApp, options: ReserveOption = {}): HttpHandler {
  checkFunction("fetch of the app of httpHandler", app?.fetch);
  checkOptionNames("httpHandler", options, OPTIONS);
  const reserve = reserveOf(options);
  return async (event, context) => {
    const deadline = deadlineOf(context, reserve);
    const platform = { deadline, event, context };
    const request = eventRequest(event);
    const response = request ? await answerOf(app, request, platform) : badRequest(context);
    return toResult(response, event, request?.prefix ?? "");
  };
}

/** The app itself needs no `Request` and no `Response`, which Node would have to load. */
async function answerOf(
  app: FetchApp | App,
  request: EventRequest,
  platform: Platform,
): Promise<EventResponse> {
  if ("answer" in app) {
    const { status, headers, body } = await app.answer(appRequest(request), platform);
    return { status, headers: Object.entries(headers), body: Buffer.from(body ?? "") };
  }
  const response = await app.fetch(toRequest(request), platform);
  const body = Buffer.from(await response.arrayBuffer());
  return { status: response.status, headers: [...response.headers], body };
}

function badRequest({ awsRequestId }: Context): EventResponse {
  const problem = new Problem(400, "MALFORMED", "the event is not a valid HTTP request");
  return {
    status: problem.status,
    headers: [
      ["Content-Type", "application/problem+json"],
      ["Cache-Control", "no-store"],
    ],
    body: Buffer.from(JSON.stringify(problemBody(problem, awsRequestId))),
  };
}
