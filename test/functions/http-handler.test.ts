import type { APIGatewayProxyStructuredResultV2 } from "aws-lambda";
import { Hono } from "hono";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import type { Deadline } from "../../core/lock/time.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { workflow } from "../../core/steps/workflow.ts";
import { bounded } from "../../functions/http/bounded.ts";
import { bearer, createApp, gatewayAuthorizer, httpHandler } from "../../functions/http/index.ts";
import { serveHttp } from "../../functions/http/node.ts";
import type { AppOptions } from "../../functions/http/options.ts";
import { ProblemBody } from "../../functions/http/schemas.ts";
import { open } from "../../infra/open.ts";
import {
  albEvent,
  functionUrlEvent,
  httpApiEvent,
  lambdaContext,
  restApiEvent,
} from "../support/lambda.ts";
import { temporaryFile } from "../support/under-test.ts";
import { pause } from "../support/until.ts";

const TOKEN = "token-of-everything";
const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };

const slow = workflow({ name: "slow", version: 1, input: z.object({}) }, async (ctx) => {
  await ctx.step("first", async () => "done");
  return ctx.step("second", { timeout: "20s" }, async () => "done");
});

/** The app behind a handler, on a store of its own. */
async function deployed(more: AppOptions = {}) {
  const { file, remove } = await temporaryFile();
  const { locks, inventory, journal, close } = await open(`sqlite:${file}`);
  onTestFinished(async () => {
    await close();
    await remove();
  });
  const runtime = createRuntime({ journal, locks, workflows: [slow] });
  const authorize = bearer([TOKEN]);
  const app = createApp({ runtime, workflows: [slow], inventory, locks, authorize, ...more });
  const handler = httpHandler(app);
  const invoke = async (event: Parameters<typeof handler>[0], left?: () => number) => {
    const result = await handler(event, lambdaContext(left));
    return { ...result, json: jsonOf(result) };
  };
  return { invoke, inventory, app };
}

function jsonOf({ body }: APIGatewayProxyStructuredResultV2) {
  return body?.startsWith("{") ? JSON.parse(body) : undefined;
}

const keyed = (key: string) => ({ ...headers, "idempotency-key": key });

test("a body in base64 is read, as is one in plain text", async () => {
  const { invoke } = await deployed();
  const body = '{"quantity": 7}';
  const put = { method: "PUT", rawPath: "/stock/teapot", headers: keyed("a") };
  const packed = { body: Buffer.from(body).toString("base64"), isBase64Encoded: true };
  const set = await invoke(httpApiEvent({ ...put, ...packed }));
  expect(set).toMatchObject({ statusCode: 200, isBase64Encoded: false, json: { remaining: 7 } });
  // The same request: how it was packed is no part of it.
  const again = await invoke(httpApiEvent({ ...put, body }));
  expect(again.body).toBe(set.body);
  expect(again.headers?.["idempotent-replayed"]).toBe("true");
});

test("a missing body equals an empty one", async () => {
  const { invoke } = await deployed();
  const put = { method: "PUT", rawPath: "/stock/teapot", headers: keyed("a") };
  for (const body of [undefined, ""]) {
    const refused = await invoke(httpApiEvent({ ...put, ...(body !== undefined && { body }) }));
    expect(refused).toMatchObject({ statusCode: 400, json: { code: "INVALID" } });
  }
});

test("an error of the access log changes no response", async () => {
  const log = () => {
    throw new Error("a fault of the log's own");
  };
  const { invoke } = await deployed({ log });
  const put = { method: "PUT", rawPath: "/stock/teapot", headers: keyed("a") };
  const set = await invoke(httpApiEvent({ ...put, body: '{"quantity": 7}' }));
  expect(set).toMatchObject({ statusCode: 200, json: { remaining: 7 } });
});

test("a GET with a body gets the response of one without", async () => {
  const { invoke } = await deployed();
  const get = httpApiEvent({ rawPath: "/stock/teapot", headers, body: "{}" });
  expect(await invoke(get)).toMatchObject({ statusCode: 404, json: { code: "UNKNOWN_SKU" } });
});

test("an HTTP API's decoded path and a function URL's encoded one mean the same sku", async () => {
  const { invoke, inventory } = await deployed();
  const body = '{"quantity": 3}';
  const put = { method: "PUT", body };
  for (const [i, sku] of ["50%", "a%41", "tea pot", "é#1", "100%25"].entries()) {
    const rawPath = `/stock/${encodeURIComponent(sku)}`;
    const one = functionUrlEvent({ ...put, rawPath, headers: keyed(`url-${i}`) });
    expect(await invoke(one)).toMatchObject({ statusCode: 200, json: { sku } });
    const other = httpApiEvent({ ...put, rawPath: `/stock/${sku}`, headers: keyed(`api-${i}`) });
    expect(await invoke(other)).toMatchObject({ statusCode: 200, json: { sku } });
    expect(await inventory.get(sku)).toMatchObject({ onHand: 3 });
  }
  const slash = { rawPath: "/stock/-", rawQueryString: "sku=a%2Fb%3Fc", headers: keyed("slash") };
  expect(await invoke(httpApiEvent({ ...put, ...slash }))).toMatchObject({
    json: { sku: "a/b?c" },
  });
});

test("a REST API's event is served, and its stage stands in Location", async () => {
  const { invoke, inventory } = await deployed();
  for (const [i, sku] of ["50%", "tea pot", "é#1", "a/b"].entries()) {
    const path = `/stock/${encodeURIComponent(sku)}`;
    const put = { method: "PUT", path, headers: keyed(`rest-${i}`), body: '{"quantity": 3}' };
    expect(await invoke(restApiEvent(put))).toMatchObject({ statusCode: 200, json: { sku } });
    expect(await inventory.get(sku)).toMatchObject({ onHand: 3 });
  }
  const query = { sku: ["a b&c"] };
  const set = {
    method: "PUT",
    path: "/stock/-",
    query,
    headers: keyed("q"),
    body: '{"quantity":1}',
  };
  expect(await invoke(restApiEvent(set))).toMatchObject({ json: { sku: "a b&c" } });
  const path = "/workflows/slow/runs";
  const start = restApiEvent({ method: "POST", path, body: "{}", headers: keyed("run-1") });
  const parked = await invoke(start, () => 10_000);
  expect(parked.statusCode).toBe(202);
  expect(parked.multiValueHeaders?.location).toEqual(["/prod/runs/run-1"]);
  const odd = await invoke(restApiEvent({ method: "A B" }));
  expect(odd).toMatchObject({ statusCode: 400, json: { code: "MALFORMED" } });
});

test("an HTTP API with payload 1.0 decodes its path", async () => {
  const { invoke } = await deployed();
  const event = { ...restApiEvent({ path: "/stock/50%", headers }), version: "1.0" };
  expect(await invoke(event)).toMatchObject({ statusCode: 404, json: { code: "UNKNOWN_SKU" } });
});

test("the stage of a REST API may have the name of a route", async () => {
  const { invoke, inventory } = await deployed();
  await inventory.set({ sku: "cup", quantity: 3, operationId: "supply" });
  const event = restApiEvent({ method: "GET", path: "/stock/cup", headers: keyed("a") });
  const { requestContext } = event;
  const staged = { ...requestContext, stage: "stock", path: "/stock/stock/cup" };
  expect(await invoke({ ...event, requestContext: staged })).toMatchObject({ statusCode: 200 });
});

test("a named stage of an HTTP API is no part of the app's paths, and stands in Location", async () => {
  const { invoke } = await deployed();
  const more = { method: "POST", rawPath: "/prod/workflows/slow/runs", body: "{}" };
  const event = httpApiEvent({ ...more, headers: keyed("run-1") });
  const staged = { ...event, requestContext: { ...event.requestContext, stage: "prod" } };
  const parked = await invoke(staged, () => 10_000);
  expect(parked.statusCode).toBe(202);
  expect(parked.headers?.location).toBe("/prod/runs/run-1");
});

test("what is no stage is a part of the path", async () => {
  const { invoke } = await deployed();
  const paths = [
    albEvent({ path: "/undefined/health", headers }, { lists: false }),
    httpApiEvent({ rawPath: "/$default/health", headers }),
  ];
  for (const event of paths) {
    expect((await invoke(event)).json).toMatchObject({ code: "NOT_FOUND" });
  }
});

test.each([true, false])(
  "a load balancer's event is served (lists of values: %s)",
  async (lists) => {
    const { invoke, inventory } = await deployed();
    const balanced = (request: Parameters<typeof albEvent>[0]) => albEvent(request, { lists });
    const put = { method: "PUT", headers: keyed("a"), body: '{"quantity": 3}' };
    const set = await invoke(balanced({ ...put, path: "/stock/tea%20pot" }));
    expect(set).toMatchObject({
      statusCode: 200,
      statusDescription: "200 OK",
      isBase64Encoded: false,
    });
    expect(await inventory.get("tea pot")).toMatchObject({ onHand: 3 });
    // The load balancer reads the headers in the form of its event alone.
    expect(set.headers?.["content-type"]).toBe(lists ? undefined : "application/json");
    expect(set.multiValueHeaders?.["content-type"]).toEqual(
      lists ? ["application/json"] : undefined,
    );
    const read = await invoke(
      balanced({ path: "/stock/-", query: { sku: ["tea%20pot"] }, headers }),
    );
    expect(read).toMatchObject({ statusCode: 200, json: { onHand: 3 } });
    const page = { limit: ["1"], sku: ["tea%20pot"] };
    const history = await invoke(balanced({ path: "/stock/-/history", query: page, headers }));
    expect(history.json.entries).toHaveLength(1);
  },
);

test("a Host header that is more than a host changes no path", async () => {
  const { invoke } = await deployed();
  const hosts = [
    "shop.example/stock/b#",
    "shop.example/stock/b?",
    "a\\stock\\b#",
    "a@b",
    "a b",
    "",
  ];
  for (const host of [...hosts, "shop.example:8443", "[::1]:80"]) {
    const event = albEvent({ path: "/stock/a", headers: { ...headers, host } }, { lists: false });
    const { json } = await invoke(event);
    expect(json).toMatchObject({ code: "UNKNOWN_SKU", detail: expect.stringContaining('sku "a"') });
  }
});

test("pages of the allowed origins may call the app, without credentials for the preflight", async () => {
  const { app } = await deployed({ origins: ["https://shop.example"] });
  const ask = (method: string, origin: string, more: Record<string, string> = {}) =>
    app.fetch(new Request("https://api/stock/a", { method, headers: { origin, ...more } }));
  const preflight = await ask("OPTIONS", "https://shop.example", {
    "access-control-request-method": "PUT",
    "access-control-request-headers": "authorization,idempotency-key",
  });
  expect(preflight.status).toBe(204);
  const allowed = (name: string) => preflight.headers.get(`access-control-allow-${name}`);
  expect(allowed("origin")).toBe("https://shop.example");
  expect(allowed("methods")).toContain("PUT");
  expect(allowed("headers")?.toLowerCase()).toContain("idempotency-key");
  const refused = await ask("GET", "https://shop.example");
  expect(refused.status).toBe(401);
  expect(refused.headers.get("access-control-allow-origin")).toBe("https://shop.example");
  expect(refused.headers.get("access-control-expose-headers")).toContain("Retry-After");
  const other = await ask("OPTIONS", "https://evil.example");
  expect(other.headers.get("access-control-allow-origin")).toBeNull();
  expect(() => createApp({ origins: ["shop.example"] })).toThrow(/origins.*shop\.example/);
});

test("without its page, /docs says what to install", async () => {
  const { app } = await deployed();
  const page = await app.fetch(new Request("https://api/docs", { headers }));
  expect(page.status).toBe(404);
  expect(((await page.json()) as { detail: string }).detail).toContain(
    "npm install swagger-ui-dist",
  );
});

test("a run is parked before the invocation ends, and the next invocation resumes it", async () => {
  const { invoke } = await deployed();
  const start = httpApiEvent({
    ...{ method: "POST", rawPath: "/workflows/slow/runs", body: "{}", headers: keyed("run-1") },
  });
  const parked = await invoke(start, () => 10_000);
  expect(parked).toMatchObject({ statusCode: 202, json: { reason: "deadline" } });
  expect(parked.headers?.location).toBe("/runs/run-1");
  const done = await invoke(start, () => 29_000);
  expect(done).toMatchObject({ statusCode: 200, json: { output: "done" } });
});

test("work that cannot finish before the invocation ends is not started", async () => {
  const { invoke, inventory } = await deployed();
  const put = { method: "PUT", rawPath: "/stock/teapot", body: '{"quantity": 7}' };
  const late = await invoke(httpApiEvent({ ...put, headers: keyed("a") }), () => 1_000);
  expect(late).toMatchObject({ statusCode: 503, json: { code: "NO_TIME" } });
  expect(late.headers?.["retry-after"]).toBe("1");
  const killed = await invoke(httpApiEvent({ ...put, headers: keyed("a") }), () => 0);
  expect(killed.statusCode).toBe(503);
  expect(await inventory.get("teapot")).toBeUndefined();
});

test("a request is accepted with an authorizer's context, and refused without", async () => {
  const who: unknown[] = [];
  const { invoke } = await deployed({
    authorize: gatewayAuthorizer,
    log: (entry) => who.push(entry.principal),
  });
  const seen = (authorizer: unknown) => {
    const event = httpApiEvent({ rawPath: "/ready" });
    return { ...event, requestContext: { ...event.requestContext, authorizer } } as typeof event;
  };
  const iam = { accountId: "123456789012", userArn: "arn:aws:iam::123456789012:user/shop" };
  const passed = [
    { iam },
    { jwt: { claims: { sub: "user-7" }, scopes: null } },
    { lambda: { a: 1 } },
  ];
  for (const one of passed) expect((await invoke(seen(one))).statusCode).toBe(200);
  for (const one of [undefined, {}]) expect((await invoke(seen(one))).statusCode).toBe(401);
  const rest = (context: object) => {
    const event = restApiEvent({ path: "/ready" });
    return { ...event, requestContext: { ...event.requestContext, ...context } } as typeof event;
  };
  const restPassed = [
    { authorizer: { principalId: "shop" } },
    { authorizer: { principalId: "" } },
    { authorizer: { claims: { sub: "user-7" } } },
    { identity: { userArn: iam.userArn } },
  ];
  for (const one of restPassed) expect((await invoke(rest(one))).statusCode).toBe(200);
  for (const one of [{}, { authorizer: { claims: null, scopes: null } }]) {
    expect((await invoke(rest(one))).statusCode).toBe(401);
  }
  expect(who.slice(0, 2)).toEqual([iam.userArn, "user-7"]);
});

test("cookies are passed one by one, and a binary body is sent in base64", async () => {
  const app = new Hono();
  app.get("/", (c) => {
    c.header("set-cookie", "a=1; Path=/", { append: true });
    c.header("set-cookie", "b=2", { append: true });
    return c.text(`${c.req.header("cookie")} ${c.req.query("q")} ${c.req.header("x-many")}`);
  });
  app.get("/bytes", (c) => c.body(new Uint8Array([0, 255]), 200, { "content-type": "image/png" }));
  const handler = httpHandler(app);
  const event = httpApiEvent({
    ...{ cookies: ["s=1", "t=2"], rawQueryString: "q=a%20b%26&q=c", headers: { "x-many": "1,2" } },
  });
  const result = await handler(event, lambdaContext());
  expect(result).toMatchObject({ body: "s=1; t=2 a b& 1,2", cookies: ["a=1; Path=/", "b=2"] });
  expect(result.headers).not.toHaveProperty("set-cookie");
  const bytes = await handler(httpApiEvent({ rawPath: "/bytes" }), lambdaContext());
  expect(bytes).toMatchObject({ body: "AP8=", isBase64Encoded: true });
});

test("a request with a header outside of ASCII is accepted", async () => {
  const { invoke } = await deployed();
  const headers = { ...httpApiEvent({}).headers, "user-agent": "アプリ/1.0", "x-city": "Zürich" };
  const cookies = ["name=Łukasz"];
  const read = await invoke(httpApiEvent({ rawPath: "/health", headers, cookies }));
  expect(read.statusCode).toBe(200);
});

test("an event that is not a valid request is a 400", async () => {
  const { invoke } = await deployed();
  const odd = [
    httpApiEvent({ method: "A B" }),
    httpApiEvent({ headers: { "a b": "c" } }),
    httpApiEvent({ rawPath: "/stock/\ud800" }),
  ];
  for (const event of odd) {
    const refused = await invoke(event);
    expect(refused).toMatchObject({ statusCode: 400, json: { code: "MALFORMED" } });
    expect(ProblemBody.parse(refused.json).requestId).toBe(lambdaContext().awsRequestId);
  }
});

test.each([
  ["POST", "/runs/a/signals/x#1", "{}"],
  ["POST", "/workflows/slow/runs", "{}", `debounce=${"9".repeat(400)}d`],
  ["GET", `/runs/a/published/${"x".repeat(101)}`, undefined],
])("a wrong name or span is a 400: %s %s", async (method, rawPath, body, rawQueryString = "") => {
  const { invoke } = await deployed();
  await invoke(
    httpApiEvent({
      method: "POST",
      rawPath: "/workflows/slow/runs",
      headers: keyed("a"),
      body: "{}",
    }),
  );
  const request = { method, rawPath, rawQueryString, headers: keyed("b"), ...(body && { body }) };
  const { statusCode, json } = await invoke(httpApiEvent(request));
  expect({ statusCode, code: json.code }).toEqual({ statusCode: 400, code: "INVALID" });
});

test.each([
  ["a name that is no text", { "x\ud800": ["1"] }, 400],
  ["a name without values", { x: null as never }, 200],
])("a query with %s is answered", async (_, multiValueQueryStringParameters, statusCode) => {
  const { invoke } = await deployed();
  const event = { ...restApiEvent({ path: "/health" }), multiValueQueryStringParameters };
  expect(await invoke(event)).toMatchObject({ statusCode });
});

test("all calls of a request share the second after its deadline", async () => {
  const never = new Promise<string>(() => {});
  const passed = { remaining: () => -1_000 } as Deadline;
  const outcome = bounded(never, passed).catch(({ code }) => code);
  expect(await Promise.race([outcome, pause(800)])).toBe("UNKNOWN_OUTCOME");
});

test("the app works on any fetch runtime, and can be mounted in another app", async () => {
  const { app } = await deployed();
  expect((await app.fetch(new Request("https://shop/health"))).status).toBe(200);
  const parent = new Hono().mount("/lockstep", app.fetch);
  expect((await parent.fetch(new Request("https://shop/lockstep/health"))).status).toBe(200);
  expect((await parent.fetch(new Request("https://shop/lockstep/stock/a"))).status).toBe(401);
});

test("a server without a valid port does not start", async () => {
  const { app } = await deployed();
  for (const port of ["x", -1, 65_536, 1.5, null] as number[]) {
    await expect(serveHttp(app, { port })).rejects.toThrow("port must be");
  }
});

test("a path means the same sku wherever the app is mounted", async () => {
  const { app, invoke } = await deployed({ basePath: "/shop/v1" });
  const ask = async (from: Pick<typeof app, "fetch">, path: string) =>
    (await (await from.fetch(new Request(`https://shop${path}`, { headers }))).json()) as unknown;
  const unknown = { code: "UNKNOWN_SKU", detail: 'sku "a" does not exist; create it with set' };
  for (const path of ["/shop/v1/stock/a", "/%73%68op/v1/stock/a", "/shop/v1/%73tock/a"]) {
    expect(await ask(app, path)).toMatchObject(unknown);
  }
  const parent = new Hono().route("/api", app);
  expect(await ask(parent, "/api/shop/v1/stock/a")).toMatchObject(unknown);
  // A stage that is not $default stands in the path.
  const staged = await invoke(httpApiEvent({ rawPath: "/shop/v1/stock/a", headers }));
  expect(staged.json).toMatchObject(unknown);
});

test("the bytes of a body are counted, not its declared length", async () => {
  const { app } = await deployed({ bodyLimit: 20 });
  const said = { ...keyed("a"), "content-length": "14" };
  const body = '{"quantity": 1}'.padEnd(1_000);
  const put = new Request("https://shop/stock/a", { method: "PUT", headers: said, body });
  expect((await app.fetch(put)).status).toBe(413);
});

test("an event of another source is named as such", async () => {
  const { invoke } = await deployed();
  for (const event of [undefined, null, {}, { Records: [] }, "x"] as never[]) {
    await expect(invoke(event)).rejects.toThrow("the event is not from API Gateway");
  }
});
