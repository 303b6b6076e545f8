import { Validator } from "@seriousme/openapi-schema-validator";
import { expect, test } from "vitest";
import { z } from "zod";
import type { RecordKind, RecordOutcome } from "../../core/journal/records.ts";
import type { ParkReason, RunStatus } from "../../core/journal/runs.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { workflow } from "../../core/steps/workflow.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { createApp, routesOf } from "../../functions/http/app.ts";
import { bearer } from "../../functions/http/auth.ts";
import type { AppOptions } from "../../functions/http/options.ts";
import { swaggerPage } from "../../functions/http/swagger-page.ts";
import { pageAt } from "../support/docs.ts";

const TOKEN = "token-of-everything";

const options: AppOptions = {
  runtime: createRuntime({ journal: memoryJournal() }),
  // Nothing of it is called.
  inventory: {} as never,
  authorize: bearer([TOKEN]),
  secret: "a secret of sixteen bytes",
  statuses: { NO_MONEY: 402 },
  page: await swaggerPage(),
};

async function documentOf(more: AppOptions = {}) {
  const { basePath = "" } = more;
  const app = createApp({ ...options, ...more });
  const request = new Request(`https://shop${basePath}/openapi.json`);
  return (await (await app.fetch(request)).json()) as {
    readonly servers: readonly { readonly url: string }[];
    readonly paths: Record<string, Record<string, Operation>>;
    readonly components: { readonly schemas: Record<string, Schema> };
  };
}

interface Schema {
  readonly properties: Readonly<Record<string, { readonly enum?: readonly string[] }>>;
}

interface Body {
  readonly content: Readonly<Record<string, { readonly schema: object }>>;
}

interface Operation {
  readonly operationId: string;
  readonly security?: unknown;
  readonly requestBody?: unknown;
  readonly responses: Readonly<Record<string, unknown>>;
  readonly parameters?: readonly { readonly name: string; readonly required?: boolean }[];
}

test("the page of a history is described with its limits", async () => {
  const { paths } = await documentOf();
  expect(paths["/stock/{sku}/history"]?.get?.parameters).toMatchObject([
    { name: "sku", required: true },
    { name: "limit", schema: { type: "integer", minimum: 1, maximum: 1_000, default: 100 } },
    { name: "before", schema: { type: "integer", minimum: 0 } },
  ]);
});

test("the document is valid OpenAPI 3.1", async () => {
  const validator = new Validator();
  const { valid, errors } = await validator.validate(await documentOf());
  expect(errors).toBeUndefined();
  expect(valid).toBe(true);
  expect(validator.version).toBe("3.1");
});

test("the document has the schemas of the workflows' inputs", async () => {
  const Order = z.object({ orderId: z.string(), quantity: z.int().min(1).default(1) });
  const place = workflow({ name: "place order", version: 2, input: Order }, async () => {});
  const older = workflow({ name: "place order", version: 1, input: z.string() }, async () => {});
  const validate = () => ({ value: 1 });
  const bare = { "~standard": { version: 1, vendor: "own", validate } } as const;
  const untold = workflow({ name: "untold", version: 1, input: bare }, async () => {});
  const document = await documentOf({ workflows: [place, older, untold] });
  expect((await new Validator().validate(document)).valid).toBe(true);
  const { post } = document.paths["/workflows/place%20order/runs"] ?? {};
  expect(post?.operationId).toBe("startRun place order");
  const schema = (operation: Operation | undefined) =>
    (operation?.requestBody as Body | undefined)?.content["application/json"]?.schema;
  expect(schema(post)).toMatchObject({
    type: "object",
    properties: { orderId: { type: "string" }, quantity: { type: "integer", minimum: 1 } },
    required: ["orderId"],
  });
  const parameters = post?.parameters?.map(({ name }) => name);
  expect(parameters).toContain("Idempotency-Key");
  expect(parameters).not.toContain("workflow");
  const other = document.paths["/workflows/untold/runs"]?.post;
  expect(schema(other)).toMatchObject({ description: expect.stringContaining("JSON Schema") });
});

test("the document has exactly the routes of the app", async () => {
  const { paths } = await documentOf();
  const documented = Object.entries(paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method} ${path}`),
  );
  const routes = routesOf(options).map(({ method, path }) => `${method} ${path}`);
  expect(documented.sort()).toEqual(routes.sort());
  const app = createApp(options);
  const headers = { authorization: `Bearer ${TOKEN}` };
  for (const [path, methods] of Object.entries(paths)) {
    const url = `https://shop${path.replaceAll(/\{\w+\}/g, "a")}`;
    const refused = await app.fetch(new Request(url, { method: "PATCH", headers }));
    const allowed = refused.headers.get("allow")?.toLowerCase().split(", ") ?? [];
    expect(allowed.filter((method) => method !== "head")).toEqual(Object.keys(methods));
  }
});

test("the page of HTTP has each path of the document, with its access", () => {
  const rows = pageAt("docs/http.md").matchAll(
    /^\| (GET|PUT|POST) \| `(.*?)` \| .* \| (\w+).* \|$/gm,
  );
  const routes = routesOf(options).map(({ method, path, access, operation }) => {
    // Without a page, the document is for readers.
    const told = operation === "document" ? "read" : access;
    return `${method.toUpperCase()} ${path} ${told}`;
  });
  const told = [...rows].map(([, method, path, access]) => `${method} ${path} ${access}`);
  expect(told.sort()).toEqual(routes.sort());
});

test("the document names the keys, parameters, bodies and problems of each route", async () => {
  const { paths } = await documentOf();
  const sell = paths["/stock/{sku}/decrement"]?.post;
  const names = sell?.parameters?.filter(({ required }) => required).map(({ name }) => name);
  expect(names?.sort()).toEqual(["Idempotency-Key", "sku"]);
  expect(sell?.requestBody).toBeDefined();
  const statuses = Object.keys(sell?.responses ?? {});
  const expected = [200, 400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 500, 503].map(String);
  expect(statuses).toEqual(expected);
  const start = Object.keys(paths["/workflows/{workflow}/runs"]?.post?.responses ?? {});
  expect(start).toEqual(expect.arrayContaining(["202", "402", "423"]));
  expect(
    paths["/stock/{sku}/reservations/{reservation}/confirm"]?.post?.requestBody,
  ).toBeUndefined();
  // Either the stores do not answer, or there is no time to ask them.
  expect(paths["/ready"]?.get?.responses[503]).toMatchObject({
    ...{ description: "a store does not answer" },
    ...{ content: { "application/json": {}, "application/problem+json": {} } },
  });
  for (const { operationId, security } of Object.values(paths).flatMap(
    Object.values,
  ) as Operation[]) {
    const isOpen = ["health", "document", "page"].includes(operationId);
    expect({ operationId, security }).toEqual({ operationId, security: isOpen ? [] : undefined });
  }
});

test("the document lists all kinds and outcomes of records, and all states of runs", async () => {
  const { schemas } = (await documentOf()).components;
  const listed = (schema: string, property: string) =>
    [...(schemas[schema]?.properties[property]?.enum ?? [])].sort();
  expect(listed("Step", "kind")).toEqual(namesOf(KINDS));
  expect(listed("Step", "outcome")).toEqual(namesOf(OUTCOMES));
  expect(listed("Run", "status")).toEqual(namesOf(STATUSES));
  expect(listed("Suspended", "reason")).toEqual(namesOf(REASONS));
});

test("the document is served below the base path, and is public only with the page", async () => {
  expect((await documentOf({ basePath: "/v1" })).servers).toEqual([{ url: "." }]);
  const { page: _, ...rest } = options;
  const app = createApp(rest);
  const ask = (headers: Record<string, string>) =>
    app.fetch(new Request("https://shop/openapi.json", { headers }));
  expect((await ask({})).status).toBe(401);
  expect((await ask({ authorization: `Bearer ${TOKEN}` })).status).toBe(200);
  expect((await app.fetch(new Request("https://shop/docs/index.html"))).status).toBe(401);
});

test("createApp refuses invalid options", () => {
  for (const basePath of ["v1", "/v1/", "/{a}", "/a b"]) {
    expect(() => createApp({ basePath })).toThrow(TypeError);
  }
  expect(() => createApp({ bodyLimit: -1 })).toThrow(RangeError);
  expect(() => createApp({ timeout: 0 })).toThrow(RangeError);
  expect(() => createApp({ limits: { perKey: 0 } })).toThrow(RangeError);
});

test("createApp refuses values that no request could be served with", () => {
  const refused: readonly (readonly [object, string])[] = [
    [{ statuses: { MINE: "x" } }, "statuses.MINE must be 400, 402, 403, 404, 409, 410, 422 or 423"],
    [{ statuses: { MINE: 200 } }, "statuses.MINE must be 400, 402, 403, 404, 409, 410, 422 or 423"],
    [{ statuses: null }, "statuses must be an object, not null"],
    [{ busyStatus: 200.5 }, "busyStatus must be 423, 409 or 429, not 200.5"],
    [{ authorize: "x" }, 'authorize must be a function, not the string "x"'],
    [{ onError: "x" }, 'onError must be a function, not the string "x"'],
    [{ log: {} }, "log must be a function, not an object"],
    [{ secret: "x" }, "the secret must have at least 16 bytes"],
    [{ secret: 7 }, "the secret must be a string, not 7"],
  ];
  for (const [wrong, message] of refused) expect(() => createApp(wrong)).toThrow(message);
});

function namesOf(all: Readonly<Record<string, true>>): readonly string[] {
  return Object.keys(all).sort();
}

// Each is complete by its type.
const KINDS: Readonly<Record<RecordKind, true>> = {
  step: true,
  tx: true,
  sleep: true,
  signal: true,
  child: true,
  value: true,
  undo: true,
  failure: true,
  fork: true,
  refusal: true,
};

const OUTCOMES: Readonly<Record<RecordOutcome, true>> = {
  ok: true,
  failed: true,
  started: true,
  retry: true,
};

const STATUSES: Readonly<Record<RunStatus, true>> = {
  running: true,
  parked: true,
  blocked: true,
  completed: true,
  failed: true,
  cancelled: true,
};

const REASONS: Readonly<Record<ParkReason, true>> = {
  sleep: true,
  signal: true,
  deadline: true,
  "lock-busy": true,
  "retry-delay": true,
  child: true,
  debounce: true,
};
