import * as z from "zod";
import {
  createDocument,
  type ZodOpenApiOperationObject,
  type ZodOpenApiPathsObject,
  type ZodOpenApiResponsesObject,
} from "zod-openapi";
import { inputSchemaOf } from "../../core/steps/schema.ts";
import type { AnyWorkflow } from "../../core/steps/workflow.ts";
import type { Route } from "./route.ts";
import { ProblemBody } from "./schemas.ts";

/** Returns the OpenAPI 3.1 document of these routes, with one more operation for each workflow. */
export function openApi(routes: readonly Route[], workflows: readonly AnyWorkflow[]): unknown {
  const paths: Record<string, Record<string, ZodOpenApiOperationObject>> = {};
  for (const route of routes) {
    paths[route.path] = { ...paths[route.path], [route.method]: operationOf(route) };
  }
  const start = routes.find(({ operation }) => operation === "startRun");
  for (const workflow of start ? workflows : []) {
    const path = `/workflows/${encodeURIComponent(workflow.name)}/runs`;
    paths[path] = { post: startOf(operationOf(start as Route), workflow) };
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
    // Relative to the document, whatever a gateway puts before the path.
    servers: [{ url: "." }],
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

const DESCRIPTION = `A write with an Idempotency-Key is applied once, however often it is sent: a repetition gets the
response of the first request, with \`Idempotent-Replayed: true\`. After 409 \`IN_PROGRESS\`, 423, 429 and 503, send the request again
with the same key after \`Retry-After\` seconds. A start with \`singleton\` or \`debounce\` is another run once the run of the first one has ended.

A number above 2^53 - 1 is refused, because it would be rounded. Send it as a string.

A path cannot carry every text (not "." and ".."; behind Amazon's HTTP APIs not "/", "?" and "%"). Write \`-\` in the path and the
parameter in the query: \`/stock/-?sku=a%2Fb\`.`;

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

/** Returns the operation that starts this workflow: its input is known, and no parameter names it. */
function startOf(
  operation: ZodOpenApiOperationObject,
  { name, input }: AnyWorkflow,
): ZodOpenApiOperationObject {
  const { path: _, ...requestParams } = operation.requestParams ?? {};
  const { $schema: __, ...described } = inputSchemaOf(input) ?? { description: UNDESCRIBED };
  // References within the schema are relative to its id.
  const schema = "$defs" in described ? { $id: `urn:lockstep:${name}`, ...described } : described;
  return {
    ...operation,
    operationId: `startRun ${name}`,
    summary: `Start a run of ${name}, or get the outcome of a started run`,
    requestParams,
    requestBody: { required: true, content: { "application/json": { schema } } },
  };
}

const UNDESCRIBED =
  "The schema of the input has no JSON Schema: its library must implement standardschema.dev/json-schema.";

function headersOf({ keyed, headers }: Route): z.ZodObject | undefined {
  const key = z.string().meta({
    description: "1 to 255 bytes of printable ASCII, unique per operation",
    examples: ["order-7"],
  });
  if (!keyed) return headers;
  return (headers ?? z.object({})).extend({ "Idempotency-Key": key });
}

function responsesOf(route: Route): ZodOpenApiResponsesObject {
  const responses: Record<string, { readonly description: string; readonly content?: object }> = {};
  for (const [status, answer] of Object.entries(route.responses)) {
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

/** Returns every status that a problem of the route may have. */
export function problemsOf({ access, problems = [] }: Route): readonly number[] {
  const common = access === "open" ? [400, 500, 503] : [400, 401, 403, 429, 500, 503];
  const all = [...common, ...problems, ...(access === "write" ? [408, 413, 415] : [])];
  return [...new Set(all)].sort();
}

const PROBLEMS: Readonly<Record<number, string>> = {
  400: "the request is not valid or lacks an Idempotency-Key",
  401: "the credentials are missing or invalid",
  402: "the run has failed",
  403: "the credentials do not allow the operation",
  404: "the resource does not exist",
  408: "the body was incomplete when the time was over",
  409: "a conflict with the current state: sold out, in progress, or ended",
  410: "the run has failed",
  413: "the body or a value in it is too large",
  415: "the body is not JSON",
  422: "the key was used with another payload, or the run has failed",
  423: "a lock is busy; the run resumes when the lock is free",
  429: "too many concurrent requests",
  500: "an internal error",
  503: "a store does not answer, or not enough time is left",
};
