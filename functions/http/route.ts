import type { ContentfulStatusCode } from "hono/utils/http-status";
import * as z from "zod";
import type { Deadline } from "../../core/lock/time.ts";
import type { AccessLogEntry, ErrorSource } from "./options.ts";
import { Problem } from "./problem.ts";
import type { RequestHead } from "./request.ts";

/** One operation of the app with its inputs and responses, for the router and for the OpenAPI document. */
export interface Route extends RouteShape {
  /** Rejects with a Problem for input that does not match the schemas. */
  handle(
    call: RouteRequest<Readonly<Record<string, string>>, unknown, unknown>,
  ): Promise<RouteResponse>;
}

interface RouteShape {
  /** The operationId in the document and in the access log. */
  readonly operation: string;
  readonly method: "get" | "put" | "post";

  /** Parameters are written as "{sku}". */
  readonly path: string;

  /** `open`: no authorisation. */
  readonly access: "open" | "read" | "write";
  readonly summary: string;
  readonly description?: string;
  readonly tag: "runs" | "stock" | "service";
  readonly params?: z.ZodObject;
  readonly query?: z.ZodObject;
  readonly body?: z.ZodType;

  /** Requires the header Idempotency-Key. */
  readonly keyed?: boolean;

  /** Further headers of the request. */
  readonly headers?: z.ZodObject;
  readonly responses: Readonly<Partial<Record<ContentfulStatusCode, ResponseDoc>>>;

  /** The statuses of its own problems, besides the common ones of all routes. */
  readonly problems?: readonly number[];
}

interface ResponseDoc {
  readonly description: string;
  readonly schema?: z.ZodType;

  /** Default application/json. */
  readonly type?: string;
}

export interface RouteRequest<Params, Query, Body> {
  readonly params: Params;
  readonly query: Query;
  readonly body: Body;

  /** The Idempotency-Key; empty for a route without one. */
  readonly key: string;
  readonly headers: RequestHead["headers"];

  /** The end of the invocation minus the reserve for the response. */
  readonly deadline: Deadline;

  /** Aborts at the deadline with a Problem. A disconnect does not abort: the client may repeat the request. */
  readonly signal: AbortSignal;

  /** What reports of errors call the request. */
  readonly at: ErrorSource;

  /** Tells the app's `onError` an error that the response does not show, if the server is its cause. */
  hide(error: unknown): void;

  /** Adds fields to the request's entry in the access log. */
  log(fields: Partial<AccessLogEntry>): void;
}

export interface RouteResponse {
  readonly status: ContentfulStatusCode;

  /** A string or bytes are sent unchanged, other values as JSON. */
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

interface Definition<P extends z.ZodObject, Q extends z.ZodObject, B extends z.ZodType>
  extends RouteShape {
  readonly params?: P;
  readonly query?: Q;
  readonly body?: B;
  handle(call: RouteRequest<z.output<P>, z.output<Q>, z.output<B>>): Promise<RouteResponse>;
}

/** Defines a route whose handler gets the output of its schemas. */
export function route<
  P extends z.ZodObject = z.ZodObject,
  Q extends z.ZodObject = z.ZodObject,
  B extends z.ZodType = z.ZodUndefined,
>(definition: Definition<P, Q, B>): Route {
  const { params, query, body } = definition;
  return {
    ...definition,
    handle: async (call) =>
      definition.handle({
        ...call,
        params: check("the path", params, call.params) as z.output<P>,
        query: check("the query", query, call.query) as z.output<Q>,
        body: (body
          ? check("the body", body, sentBody(body, call.body))
          : undefined) as z.output<B>,
      }),
  };
}

/** Many clients send {} with requests that have no body. */
function sentBody(schema: z.ZodType, body: unknown): unknown {
  const isObject = typeof body === "object" && body !== null && !Array.isArray(body);
  const isEmpty = isObject && Object.keys(body).length === 0;
  return schema instanceof z.ZodUndefined && isEmpty ? undefined : body;
}

/** Limits the issues in a response: a long list may have one per member. */
const MAX_ISSUES = 10;

function check(part: string, schema: z.ZodType | undefined, value: unknown): unknown {
  if (!schema) return value;
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issues = parsed.error.issues.slice(0, MAX_ISSUES).map(({ path, message }) => ({
    path: path.map(String).join("."),
    message: message.slice(0, 200),
  }));
  throw new Problem(400, "INVALID", `${part} is not valid`, { more: { issues } });
}
