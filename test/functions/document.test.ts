import { Validator } from "@seriousme/openapi-schema-validator";
import { expect, test } from "vitest";
import { memoryJournal } from "../../core/journal/memory.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { createApp, routesOf } from "../../functions/http/app.ts";
import { bearer } from "../../functions/http/auth.ts";
import type { AppOptions } from "../../functions/http/options.ts";
import { swaggerPage } from "../../functions/http/swagger-page.ts";

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
  };
}

interface Operation {
  readonly operationId: string;
  readonly security?: unknown;
  readonly requestBody?: unknown;
  readonly responses: Readonly<Record<string, unknown>>;
  readonly parameters?: readonly { readonly name: string; readonly required?: boolean }[];
}

test("the document is one of OpenAPI 3.1", async () => {
  const validator = new Validator();
  const { valid, errors } = await validator.validate(await documentOf());
  expect(errors).toBeUndefined();
  expect(valid).toBe(true);
  expect(validator.version).toBe("3.1");
});

test("it has every route of the app, and nothing else", async () => {
  const { paths } = await documentOf();
  const documented = Object.entries(paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method} ${path}`),
  );
  const app = createApp(options);
  const served = app.routes
    .filter(({ method, path }) => method !== "ALL" && path !== "/docs")
    .map(({ method, path }) => `${method.toLowerCase()} ${path.replace(/:(\w+)/g, "{$1}")}`);
  expect(documented.sort()).toEqual([...new Set(served)].sort());
  expect(documented).toHaveLength(routesOf(options).length);
});

test("it names keys, parameters, bodies and problems of each route", async () => {
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
    ...{ description: "one of them does not" },
    ...{ content: { "application/json": {}, "application/problem+json": {} } },
  });
  for (const { operationId, security } of Object.values(paths).flatMap(
    Object.values,
  ) as Operation[]) {
    const isOpen = ["health", "document", "page"].includes(operationId);
    expect({ operationId, security }).toEqual({ operationId, security: isOpen ? [] : undefined });
  }
});

test("it stands where the app is served, and is open only with the page", async () => {
  expect((await documentOf({ basePath: "/v1" })).servers).toEqual([{ url: "/v1" }]);
  const { page: _, ...rest } = options;
  const app = createApp(rest);
  const ask = (headers: Record<string, string>) =>
    app.fetch(new Request("https://shop/openapi.json", { headers }));
  expect((await ask({})).status).toBe(401);
  expect((await ask({ authorization: `Bearer ${TOKEN}` })).status).toBe(200);
  expect((await app.fetch(new Request("https://shop/docs/index.html"))).status).toBe(401);
});

test("bad options are refused when the app is made", () => {
  for (const basePath of ["v1", "/v1/", "/{a}", "/a b"]) {
    expect(() => createApp({ basePath })).toThrow(TypeError);
  }
  expect(() => createApp({ bodyLimit: -1 })).toThrow(RangeError);
  expect(() => createApp({ timeout: 0 })).toThrow(RangeError);
  expect(() => createApp({ limits: { perKey: 0 } })).toThrow(RangeError);
});
