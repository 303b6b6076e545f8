import type { ContentfulStatusCode } from "hono/utils/http-status";
import type { Millis } from "../../core/lock/time.ts";

/** An error with its HTTP response, `application/problem+json` of RFC 9457. */
export class Problem extends Error {
  override readonly name = "Problem";
  readonly status: ContentfulStatusCode;

  /** For programs: "SOLD_OUT". */
  readonly code: string;

  /** The time after which the client may repeat the request with the same key. Undefined: a repetition is useless. */
  readonly retryIn: Millis | undefined;

  /** Further members of the body. */
  readonly more: Readonly<Record<string, unknown>>;
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    status: ContentfulStatusCode,
    code: string,
    detail: string,
    { retryIn, more = {}, headers = {}, cause }: ProblemOptions = {},
  ) {
    super(detail, cause === undefined ? undefined : { cause });
    this.status = status;
    this.code = code;
    this.retryIn = retryIn;
    this.more = more;
    this.headers = headers;
  }
}

interface ProblemOptions {
  readonly retryIn?: Millis | undefined;
  readonly more?: Readonly<Record<string, unknown>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly cause?: unknown;
}

/** Retry-After for an overloaded server and for an unavailable store. */
export const RETRY_SOON: Millis = 1_000;

/**
 * Converts an error to a Problem. An error without an entry in `MAPPINGS` is an internal fault.
 *
 * The messages of stores are not shown: they name hosts and tables.
 */
export function toProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  const [status, detail, retryIn] = MAPPINGS[codeOf(error)] ?? UNEXPECTED;
  const code = status === 500 ? "INTERNAL" : codeOf(error);
  const text = detail ?? (error as Error).message;
  const issues = code === "INVALID" ? { issues: (error as { data?: unknown }).data } : {};
  return new Problem(status, code, text, { retryIn, more: issues, cause: error });
}

/** The time was over before the store received the request. */
export function timeExceeded(): Problem {
  const detail = "not enough time was left, and nothing has changed; send the request again";
  return new Problem(503, "NO_TIME", detail, { retryIn: RETRY_SOON });
}

export function tooManyRequests(resource: string): Problem {
  const detail = `too many concurrent requests for ${resource}`;
  return new Problem(429, "TOO_MANY_REQUESTS", detail, { retryIn: RETRY_SOON });
}

type Mapping = readonly [
  status: ContentfulStatusCode,
  /** Undefined: the message of the error, which addresses the caller. */
  detail: string | undefined,
  retryIn?: Millis,
];

const UNEXPECTED: Mapping = [
  500,
  "an internal error; the server's log has the cause under the requestId",
];

const UNKNOWN_OUTCOME =
  "the change may or may not have happened; send the same request again with the same key";

const MAPPINGS: Readonly<Record<string, Mapping>> = {
  INVALID: [400, undefined],
  FENCE_INVALID: [400, undefined],
  UNKNOWN_SKU: [404, undefined],
  UNKNOWN_RESERVATION: [404, undefined],
  UNKNOWN_RUN: [404, undefined],
  RUN_COMPLETED: [409, undefined],
  UNDO_FAILED: [409, undefined],
  NO_FAILED_UNDO: [409, undefined],
  RUN_UNDOING: [409, undefined],
  RUN_CANCELLED: [409, undefined, RETRY_SOON],
  FORK_CONFLICT: [422, undefined],
  UNKNOWN_STEP: [422, undefined],
  UNKNOWN_WORKFLOW: [404, undefined],
  FENCED_OUT: [409, "a later holder has the lock; nothing has changed"],
  INPUT_CONFLICT: [422, undefined],
  SIGNAL_CONFLICT: [422, undefined],
  TOO_LARGE: [413, undefined],
  OPERATION_CONFLICT: [422, undefined],
  LOCK_TIMEOUT: [423, "the lock is busy", RETRY_SOON],
  TOO_MANY_WAITERS: [429, "too many requests wait for locks", RETRY_SOON],
  STORE_UNAVAILABLE: [503, "the store does not answer; nothing has changed", RETRY_SOON],
  STORE_CLOSED: [503, "the server is shutting down", RETRY_SOON],
  UNREADABLE_VALUE: [503, "the codec or the key of a stored value is missing here", RETRY_SOON],
  LOCK_LOST: [503, "the lock was lost", RETRY_SOON],
  SESSION_EXPIRED: [503, "the lock was lost", RETRY_SOON],
  UNKNOWN_OUTCOME: [503, UNKNOWN_OUTCOME, RETRY_SOON],
};

function codeOf(error: unknown): string {
  const { code } = Object(error) as { readonly code?: unknown };
  return typeof code === "string" && Object.hasOwn(MAPPINGS, code) ? code : "";
}

/** Returns the members of the response body, by RFC 9457. */
export function problemBody({ status, code, message, more }: Problem, requestId: string) {
  const title = TITLES[status] ?? "Problem";
  return { ...more, type: "about:blank", title, status, code, detail: message, requestId };
}

export function problemHeaders({ headers, retryIn }: Problem): Record<string, string> {
  const retry = retryIn === undefined ? {} : retryAfter(retryIn);
  return { "Content-Type": "application/problem+json", ...headers, ...retry };
}

/** A problem of the type about:blank has the title of its status. */
const TITLES: Readonly<Record<number, string>> = {
  400: "Bad Request",
  401: "Unauthorized",
  402: "Payment Required",
  403: "Forbidden",
  404: "Not Found",
  405: "Method Not Allowed",
  408: "Request Timeout",
  409: "Conflict",
  410: "Gone",
  413: "Content Too Large",
  415: "Unsupported Media Type",
  421: "Misdirected Request",
  422: "Unprocessable Content",
  423: "Locked",
  429: "Too Many Requests",
  500: "Internal Server Error",
  503: "Service Unavailable",
};

/** Retry-After for a run that only a signal wakes. */
const RETRY_SIGNAL: Millis = 60_000;

/** Returns the header in whole seconds, at least 1. An infinite span stands for a run that waits for a signal. */
export function retryAfter(span: Millis): Record<string, string> {
  const wait = Number.isFinite(span) ? span : RETRY_SIGNAL;
  return { "Retry-After": String(Math.max(1, Math.ceil(wait / 1_000))) };
}
