import type { ContentfulStatusCode } from "hono/utils/http-status";
import type * as z from "zod";
import type { Deadline } from "../../core/lock/time.ts";
import type { AccessEntry } from "./access-log.ts";
import { Problem } from "./problem.ts";

/** One operation of the app: what it takes and answers with, for the router and for the OpenAPI document. */
export interface Route extends Shape {
  /** What the schemas do not let through is a Problem. */
  handle(call: Call<Readonly<Record<string, string>>, unknown, unknown>): Promise<Answer>;
}

interface Shape {
  /** Its name in the document and in the log. */
  readonly operation: string;
  readonly method: "get" | "put" | "post";

  /** With parameters as "{sku}". */
  readonly path: string;

  /** `open`: anybody may. */
  readonly access: "open" | "read" | "write";
  readonly summary: string;
  readonly description?: string;
  readonly tag: "runs" | "stock" | "service";
  readonly params?: z.ZodObject;
  readonly query?: z.ZodObject;
  readonly body?: z.ZodType;

  /** Whether the header Idempotency-Key must come with it. */
  readonly keyed?: boolean;

  /** Further headers that it heeds. */
  readonly headers?: z.ZodObject;
  readonly answers: Readonly<Partial<Record<ContentfulStatusCode, Documented>>>;

  /** The problems that are its own; those that all may have are not named. */
  readonly problems?: readonly number[];
}

interface Documented {
  readonly description: string;
  readonly schema?: z.ZodType;

  /** Default application/json. */
  readonly type?: string;
}

export interface Call<Params, Query, Body> {
  readonly params: Params;
  readonly query: Query;
  readonly body: Body;

  /** The Idempotency-Key; empty for a route that needs none. */
  readonly key: string;
  readonly request: Request;

  /** The end of the invocation, less what the answer takes. */
  readonly deadline: Deadline;

  /** Aborts at the deadline with a Problem. Not when the client goes away: it may come back for the answer. */
  readonly signal: AbortSignal;

  /** Adds to the request's line in the log. */
  note(known: Partial<AccessEntry>): void;
}

export interface Answer {
  readonly status: ContentfulStatusCode;

  /** A string or bytes are sent as they are, everything else as JSON. */
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

interface Definition<P extends z.ZodObject, Q extends z.ZodObject, B extends z.ZodType>
  extends Shape {
  readonly params?: P;
  readonly query?: Q;
  readonly body?: B;
  handle(call: Call<z.output<P>, z.output<Q>, z.output<B>>): Promise<Answer>;
}

/** A route that is only called with what its schemas let through. */
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
        body: (body ? check("the body", body, call.body) : undefined) as z.output<B>,
      }),
  };
}

/** Most of what is wrong, but not a message for each member of a long list. */
const MOST_ISSUES = 10;

function check(what: string, schema: z.ZodType | undefined, value: unknown): unknown {
  if (!schema) return value;
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issues = parsed.error.issues.slice(0, MOST_ISSUES).map(({ path, message }) => ({
    path: path.map(String).join("."),
    message: message.slice(0, 200),
  }));
  throw new Problem(400, "INVALID", `${what} is not valid`, { more: { issues } });
}
