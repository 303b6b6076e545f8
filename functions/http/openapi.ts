import * as z from "zod";
import {
  createDocument,
  type ZodOpenApiOperationObject,
  type ZodOpenApiPathsObject,
  type ZodOpenApiResponsesObject,
} from "zod-openapi";
import type { Route } from "./route.ts";
import { ProblemBody } from "./schemas.ts";

/** The OpenAPI 3.1 document of these routes. */
export function openApi(routes: readonly Route[], basePath: string): unknown {
  const paths: Record<string, Record<string, ZodOpenApiOperationObject>> = {};
  for (const route of routes) {
    paths[route.path] = { ...paths[route.path], [route.method]: operationOf(route) };
  }
  return createDocument({
    openapi: "3.1.1",
    info: {
      title: "Lockstep",
      version: "1",
      summary: "Runs of workflows, and stock that never oversells",
      description: DESCRIPTION,
      license: { name: "MIT", identifier: "MIT" },
    },
    servers: [{ url: basePath || "/" }],
    security: [{ bearer: [] }],
    tags: [
      { name: "runs", description: "Workflows that resume" },
      { name: "stock", description: "Stock that never oversells" },
      { name: "service", description: "The service itself" },
    ],
    components: { securitySchemes: { bearer: { type: "http", scheme: "bearer" } } },
    paths: paths as ZodOpenApiPathsObject,
  });
}

const DESCRIPTION = `A write with the same Idempotency-Key is carried out once, however often it is sent: a repetition
is answered like the first one, with \`Idempotent-Replayed: true\`. After 409 \`IN_PROGRESS\`, 423, 429 and 503, send it again
with the same key after \`Retry-After\` seconds.

A number beyond 2^53 - 1 is refused: it would be rounded. Send it as a text.

Where a text cannot stand in a path ("." and ".."; behind Amazon's HTTP APIs also "/", "?" and "%"), the path says \`-\` and the
query gives the parameter: \`/stock/-?sku=a%2Fb\`.`;

function operationOf(route: Route): ZodOpenApiOperationObject {
  const { operation, summary, description, tag, access, params, query, body } = route;
  const header = headersOf(route);
  return {
    operationId: operation,
    summary,
    ...(description !== undefined && { description }),
    tags: [tag],
    ...(access === "open" && { security: [] }),
    requestParams: {
      ...(params && { path: params }),
      ...(query && { query }),
      ...(header && { header }),
    },
    ...(body &&
      !(body instanceof z.ZodUndefined) && {
        requestBody: { required: true, content: { "application/json": { schema: body } } },
      }),
    responses: responsesOf(route),
  };
}

function headersOf({ keyed, headers }: Route): z.ZodObject | undefined {
  const key = z.string().meta({
    description: "1 to 255 bytes of printable ASCII, unique to what is to happen once",
    examples: ["order-7"],
  });
  if (!keyed) return headers;
  return (headers ?? z.object({})).extend({ "Idempotency-Key": key });
}

function responsesOf(route: Route): ZodOpenApiResponsesObject {
  const responses: Record<string, { readonly description: string; readonly content?: object }> = {};
  for (const [status, answer] of Object.entries(route.answers)) {
    const { description, schema, type = "application/json" } = answer ?? { description: "" };
    const content =
      type === "application/json" && !schema ? {} : { content: { [type]: { schema } } };
    responses[status] = { description, ...content };
  }
  for (const status of problemsOf(route)) {
    const { description = PROBLEMS[status] ?? "a problem", content = {} } = responses[status] ?? {};
    const problem = { "application/problem+json": { schema: ProblemBody } };
    responses[status] = { description, content: { ...content, ...problem } };
  }
  return responses as ZodOpenApiResponsesObject;
}

/** Every status that a problem of this route may have. */
export function problemsOf({ access, problems = [] }: Route): readonly number[] {
  const common = access === "open" ? [400, 500, 503] : [400, 401, 403, 429, 500, 503];
  const all = [...common, ...problems, ...(access === "write" ? [408, 413, 415] : [])];
  return [...new Set(all)].sort();
}

const PROBLEMS: Readonly<Record<number, string>> = {
  400: "not valid, or without an Idempotency-Key",
  401: "nobody knows who asks",
  402: "the run has failed",
  403: "who asks may not do this",
  404: "there is none",
  408: "the body has not come in time",
  409: "not as things stand: sold out, still under way, has ended",
  410: "the run has failed",
  413: "the body is too large",
  415: "the body is no JSON",
  422: "the key was used with another payload, or the run has failed",
  423: "a lock is busy; the run goes on when it is free",
  429: "too much is under way",
  500: "a fault on our side",
  503: "a store does not answer, or there is not enough time left",
};
