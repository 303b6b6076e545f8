import type {
  APIGatewayProxyEventV2,
  APIGatewayProxyStructuredResultV2,
  Context,
} from "aws-lambda";
import { type Deadline, deadlineIn, type Millis } from "../../core/lock/time.ts";
import { type Duration, toMillis } from "../../core/steps/duration.ts";
import type { Platform } from "./app.ts";
import { Problem, problemBody } from "./problem.ts";

/** Anything that answers requests: the app, or one of yours that it is mounted in. */
export interface Fetches {
  fetch(request: Request, platform: Platform): Response | Promise<Response>;
}

export interface HttpHandlerOptions {
  /** How much of the invocation is kept for letting go of what is held (1 s), and for the answer. Default 1.5 s. */
  readonly reserve?: Duration;
}

export type HttpHandler = (
  event: APIGatewayProxyEventV2,
  context: Context,
) => Promise<APIGatewayProxyStructuredResultV2>;

/**
 * The app as a handler for AWS Lambda behind an HTTP API of API Gateway (payload 2.0) or a function URL.
 *
 * No run is carried beyond the invocation: it is parked in time, and whoever asks again carries it on. The app's
 * `authorize` finds `{ event, context }` as its third argument.
 */
export function httpHandler(
  app: Fetches,
  { reserve = 1_500 }: HttpHandlerOptions = {},
): HttpHandler {
  const kept = toMillis("reserve", reserve);
  return async (event, context) => {
    const deadline = deadlineOf(context, kept);
    const platform = { deadline, event, context };
    const request = toRequest(event);
    return request ? toResult(await app.fetch(request, platform)) : unreadable(context);
  };
}

/** By the runtime's count and by our own clocks: whichever says less. */
function deadlineOf(context: Context, kept: Millis): Deadline {
  const ours = deadlineIn(context.getRemainingTimeInMillis() - kept);
  const left = () => context.getRemainingTimeInMillis() - kept;
  return { remaining: () => Math.min(left(), ours.remaining()) };
}

/** Undefined for what is no request. */
function toRequest(event: APIGatewayProxyEventV2): Request | undefined {
  const { rawQueryString, requestContext, body, isBase64Encoded } = event;
  const { method } = requestContext.http;
  const query = rawQueryString ? `?${rawQueryString}` : "";
  const hasBody = body !== undefined && body !== "" && method !== "GET" && method !== "HEAD";
  try {
    return new Request(`https://${requestContext.domainName}${pathOf(event)}${query}`, {
      method,
      headers: headersOf(event),
      ...(hasBody && { body: Buffer.from(body, isBase64Encoded ? "base64" : "utf8") }),
    });
  } catch {
    return undefined;
  }
}

/**
 * An HTTP API decodes the path, a function URL does not, and nothing in the event says which of the two it is from but
 * the host. A slash that was encoded is lost to an HTTP API's path: the query can carry it.
 */
function pathOf({ rawPath, requestContext: { domainName } }: APIGatewayProxyEventV2): string {
  if (/\.lambda-url\.[\w-]+\.on\.aws$/i.test(domainName)) return rawPath;
  return rawPath.split("/").map(encodeURIComponent).join("/");
}

function headersOf({ headers, cookies }: APIGatewayProxyEventV2): Headers {
  const all = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined) all.set(name, bytesOf(value));
  }
  if (cookies) all.set("cookie", bytesOf(cookies.join("; ")));
  return all;
}

/** A header has bytes, each a character, as Node's server has it; the event has what they mean in UTF-8. */
function bytesOf(value: string): string {
  return Buffer.from(value).toString("latin1");
}

const TEXT = /^(text\/|application\/([\w.-]+\+)?(json|xml|javascript))/i;

async function toResult(response: Response): Promise<APIGatewayProxyStructuredResultV2> {
  const { status, headers } = response;
  const bytes = Buffer.from(await response.arrayBuffer());
  const isText = bytes.length === 0 || TEXT.test(headers.get("content-type") ?? "");
  const cookies = headers.getSetCookie();
  const others = [...headers].filter(([name]) => name !== "set-cookie");
  return {
    statusCode: status,
    headers: Object.fromEntries(others),
    ...(cookies.length > 0 && { cookies }),
    body: bytes.toString(isText ? "utf8" : "base64"),
    isBase64Encoded: !isText,
  };
}

function unreadable({ awsRequestId }: Context): APIGatewayProxyStructuredResultV2 {
  const problem = new Problem(400, "MALFORMED", "this is no HTTP request");
  return {
    statusCode: problem.status,
    headers: { "content-type": "application/problem+json", "cache-control": "no-store" },
    body: JSON.stringify(problemBody(problem, awsRequestId)),
  };
}
