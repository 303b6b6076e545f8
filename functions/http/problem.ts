import type { ContentfulStatusCode } from "hono/utils/http-status";
import type { Millis } from "../../core/lock/time.ts";
import { retryAfter } from "./retry-after.ts";

/** What a request is answered with that gets no other answer: `application/problem+json`, after RFC 9457. */
export class Problem extends Error {
  readonly status: ContentfulStatusCode;

  /** For programs: "SOLD_OUT". */
  readonly code: string;

  /** When the same request may be sent again, with the same key. Undefined: it is of no use. */
  readonly retryIn: Millis | undefined;

  /** Further members of the answer. */
  readonly more: Readonly<Record<string, unknown>>;
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    status: ContentfulStatusCode,
    code: string,
    detail: string,
    { retryIn, more = {}, headers = {}, cause }: Details = {},
  ) {
    super(detail, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.status = status;
    this.code = code;
    this.retryIn = retryIn;
    this.more = more;
    this.headers = headers;
  }
}

interface Details {
  readonly retryIn?: Millis | undefined;
  readonly more?: Readonly<Record<string, unknown>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly cause?: unknown;
}

/** When to come back to a server that is too busy, or to a store that is away. */
export const SOON: Millis = 1_000;

/**
 * What an error of core means to a client.
 *
 * What a store says stays here: it names hosts and tables. All else is a fault of ours.
 */
export function toProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  const [status, detail, retryIn] = MEANINGS[codeOf(error)] ?? UNEXPECTED;
  const code = status === 500 ? "INTERNAL" : codeOf(error);
  const text = detail ?? (error as Error).message;
  const issues = code === "INVALID" ? { issues: (error as { data?: unknown }).data } : {};
  return new Problem(status, code, text, { retryIn, more: issues, cause: error });
}

/** The problem where the store certainly has not done what it was asked for, for want of time. */
export function noTime(): Problem {
  const detail = "there is not enough time left; nothing has happened";
  return new Problem(503, "NO_TIME", detail, { retryIn: SOON });
}

/** Too much is under way at the same time. */
export function tooMany(what: string): Problem {
  const detail = `too many requests for ${what} are under way`;
  return new Problem(429, "TOO_MANY_REQUESTS", detail, { retryIn: SOON });
}

type Meaning = readonly [
  status: ContentfulStatusCode,
  /** Undefined: the error's own message, which is made for the caller. */
  detail: string | undefined,
  retryIn?: Millis,
];

const UNEXPECTED: Meaning = [
  500,
  "something is wrong on our side; our log has it by the request's id",
];

const UNKNOWN_OUTCOME =
  "it is not known whether it has happened: send the same request again, with the same key";

const MEANINGS: Readonly<Record<string, Meaning>> = {
  INVALID: [400, undefined],
  FENCE_INVALID: [400, undefined],
  UNKNOWN_SKU: [404, undefined],
  UNKNOWN_RESERVATION: [404, undefined],
  UNKNOWN_RUN: [404, undefined],
  UNKNOWN_WORKFLOW: [404, undefined],
  FENCED_OUT: [409, "a later holder has come: nothing has changed"],
  INPUT_CONFLICT: [422, undefined],
  OPERATION_CONFLICT: [422, undefined],
  LOCK_TIMEOUT: [423, "a lock is busy", SOON],
  TOO_MANY_WAITERS: [429, "too many callers wait for locks", SOON],
  STORE_UNAVAILABLE: [503, "the store does not answer; nothing has happened", SOON],
  STORE_CLOSED: [503, "the server is shutting down", SOON],
  LOCK_LOST: [503, "a lock was lost", SOON],
  SESSION_EXPIRED: [503, "a lock was lost", SOON],
  UNKNOWN_OUTCOME: [503, UNKNOWN_OUTCOME, SOON],
};

function codeOf(error: unknown): string {
  const { code } = Object(error) as { readonly code?: unknown };
  return typeof code === "string" && Object.hasOwn(MEANINGS, code) ? code : "";
}

/** The members of the answer, after RFC 9457. */
export function problemBody({ status, code, message, more }: Problem, requestId: string) {
  const title = TITLES[status] ?? "Problem";
  return { ...more, type: "about:blank", title, status, code, detail: message, requestId };
}

export function problemHeaders({ headers, retryIn }: Problem): Record<string, string> {
  const later = retryIn === undefined ? {} : retryAfter(retryIn);
  return { "Content-Type": "application/problem+json", ...headers, ...later };
}

/** A problem of no type of its own is called as its status is. */
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
  422: "Unprocessable Content",
  423: "Locked",
  429: "Too Many Requests",
  500: "Internal Server Error",
  503: "Service Unavailable",
};
