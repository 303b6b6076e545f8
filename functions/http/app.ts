import { type Context, Hono } from "hono";
import { cors } from "hono/cors";
import { requestId } from "hono/request-id";
import { secureHeaders } from "hono/secure-headers";
import { deadline as limitOf, race } from "../../core/lock/abort.ts";
import { checkWhole } from "../../core/lock/checks.ts";
import { deadlineIn, toMillis } from "../../core/lock/duration.ts";
import { quote } from "../../core/lock/errors.ts";
import { listener } from "../../core/lock/listener.ts";
import { type Deadline, elapsedSince, instant, type Millis } from "../../core/lock/time.ts";
import { redact } from "../../infra/redact.ts";
import { type AuthorizationRequest, callAuthorize } from "./auth.ts";
import { jsonBody } from "./body.ts";
import { idempotencyKey, pathParams, queryParams } from "./inputs.ts";
import type { AccessLogEntry, AppOptions } from "./options.ts";
import { Problem, problemBody, problemHeaders, timeExceeded, toProblem } from "./problem.ts";
import { RequestLimiter } from "./request-limiter.ts";
import type { Route, RouteResponse } from "./route.ts";
import { runRoutes } from "./routes/runs.ts";
import { serviceRoutes } from "./routes/service.ts";
import { stockRoutes } from "./routes/stock.ts";

/** The second argument of `app.fetch`. AWS Lambda adds `event` and `context`. */
export interface Platform {
  /** The end of the invocation minus the reserve for the response. */
  readonly deadline?: Deadline;
}

interface Env {
  Bindings: Platform;
  Variables: {
    readonly requestId: string;
    readonly logEntry: LogEntry;
    readonly inputs: RequestInputs;
    readonly deadline: Deadline;

    /** Aborts at the deadline with a Problem. */
    readonly signal: AbortSignal;
  };
}

/** The fields that the access log already has for the request. */
type LogEntry = { -readonly [Key in keyof AccessLogEntry]?: AccessLogEntry[Key] };

/** The inputs in a request's URL, and its Idempotency-Key; empty for a route without one. */
interface RequestInputs {
  readonly params: Readonly<Record<string, string>>;
  readonly query: unknown;
  readonly key: string;
}

export type App = Hono<Env>;

type Ctx = Context<Env>;

/** Returns all routes of an app with these options. */
export function routesOf(options: AppOptions): readonly Route[] {
  const routes: Route[] = [
    ...runRoutes(options),
    ...stockRoutes(options),
    ...serviceRoutes(options, () => routes),
  ];
  return routes;
}

/**
 * Creates an app that serves runs and stock over HTTP, on every runtime: `app.fetch(request)`.
 *
 * Throws a TypeError or RangeError for invalid options.
 */
export function createApp(options: AppOptions = {}): App {
  const { basePath = "", page, origins = [] } = options;
  checkBasePath(basePath);
  origins.forEach(checkOrigin);
  const pipeline = new RequestPipeline(options);
  const routes = routesOf(options);
  const app: App = new Hono();
  app.use(requestId(), (c, next) => pipeline.observe(c, next), headers);
  if (origins.length > 0) app.use(corsOf(origins));
  for (const route of routes) {
    const path = basePath + route.path.replace(/\{(\w+)\}/g, ":$1");
    const authorised = async (c: Ctx, next: () => Promise<void>) => {
      await pipeline.authorise(c, route);
      await next();
    };
    app.on(route.method, path, authorised, (c) => pipeline.respond(c, route));
  }
  if (page) app.get(`${basePath}/docs`, (c) => c.redirect(`${basePath}/docs/index.html`));
  addRefusals(app, pipeline, routes, basePath);
  app.onError((error, c) => pipeline.refuse(c, error));
  return app;
}

function corsOf(origins: readonly string[]) {
  return cors({
    origin: origins.includes("*") ? "*" : [...origins],
    allowMethods: ["GET", "HEAD", "PUT", "POST"],
    allowHeaders: ["Authorization", "Content-Type", "Idempotency-Key", "Lockstep-Fence", "Prefer"],
    exposeHeaders: ["Idempotent-Replayed", "Location", "Retry-After", "X-Request-Id"],
    maxAge: 600,
  });
}

function checkOrigin(origin: string): void {
  if (origin === "*" || (URL.canParse(origin) && new URL(origin).origin === origin)) return;
  const example = 'such as "https://shop.example", or "*"';
  throw new TypeError(`origins must be origins ${example}, not ${quote(origin)}`);
}

const headers = secureHeaders({
  contentSecurityPolicy: { defaultSrc: ["'none'"], frameAncestors: ["'none'"] },
  xFrameOptions: "DENY",
  // Without includeSubDomains: whether other hosts of the domain speak TLS is not known here.
  strictTransportSecurity: "max-age=15552000",
  // The docs page has its own policy.
  overwrite: false,
});

/** Refuses other methods and other paths. An unauthorised client does not learn which paths exist. */
function addRefusals(
  app: App,
  pipeline: RequestPipeline,
  routes: readonly Route[],
  basePath: string,
): void {
  for (const [template, methods] of Map.groupBy(routes, ({ path }) => path)) {
    const allow = methods.map(({ method }) =>
      method === "get" ? "GET, HEAD" : method.toUpperCase(),
    );
    app.all(basePath + template.replace(/\{(\w+)\}/g, ":$1"), async (c) => {
      await pipeline.authorise(c, undefined);
      const allowed = { headers: { Allow: allow.join(", ") } };
      throw new Problem(405, "METHOD_NOT_ALLOWED", "the path does not have this method", allowed);
    });
  }
  app.notFound(async (c) => {
    const isPage = c.req.path === `${basePath}/docs`;
    const problem = new Problem(404, "NOT_FOUND", isPage ? NO_PAGE : "the path does not exist");
    // An error thrown here would miss the security headers.
    return pipeline.authorise(c, undefined).then(
      () => pipeline.refuse(c, problem),
      (error) => pipeline.refuse(c, error),
    );
  });
}

const NO_PAGE =
  "the page is not set up: npm install swagger-ui-dist, and create the app with `page: await swaggerPage()`";

function checkBasePath(basePath: string): void {
  if (/^(\/[\w.~-]+)*$/.test(basePath)) return;
  throw new TypeError('basePath must be "" or a path such as "/v1" or "/shop/v1"');
}

class RequestPipeline {
  readonly #options: AppOptions;
  readonly #limiter: RequestLimiter;
  readonly #bodies: RequestLimiter;
  readonly #timeout: Millis;
  readonly #bodyTimeout: Millis;
  readonly #bodyLimit: number;
  readonly #onError: NonNullable<AppOptions["onError"]>;

  constructor(options: AppOptions) {
    this.#options = options;
    const { requests = 1_000, perKey = 200, bodies = 1_000 } = options.limits ?? {};
    checkWhole("limits.requests", requests, 1, 1_000_000);
    checkWhole("limits.perKey", perKey, 1, 1_000_000);
    checkWhole("limits.bodies", bodies, 1, 1_000_000);
    this.#limiter = new RequestLimiter(requests, perKey);
    this.#bodies = new RequestLimiter(bodies, bodies);
    this.#bodyTimeout = toMillis("bodyTimeout", options.bodyTimeout ?? "10s", 1);
    this.#timeout = toMillis("timeout", options.timeout ?? "25s", 1);
    this.#bodyLimit = options.bodyLimit ?? 262_144;
    checkWhole("bodyLimit", this.#bodyLimit, 0, 2 ** 30);
    this.#onError = listener(options.onError);
  }

  /** Throws a Problem unless the request is authorised for the route. */
  async authorise(c: Ctx, route: Route | undefined): Promise<void> {
    const { operation = "unknown", access = "read" } = route ?? {};
    c.var.logEntry.operation = operation;
    const { params, query, key, problem } = readInputs(c, route);
    const request = { operation, params, ...(key && { key }) };
    if (access !== "open") await this.#authorise(c, { ...request, access });
    if (problem) throw problem;
    c.set("inputs", { params, query, key });
  }

  async #authorise(c: Ctx, request: AuthorizationRequest): Promise<void> {
    const { authorize } = this.#options;
    if (!authorize) {
      throw new Problem(
        403,
        "FORBIDDEN",
        "the server allows no requests: its option `authorize` is not set",
      );
    }
    const deciding = callAuthorize(() => authorize(c.req.raw, request, c.env));
    const decision = await race(deciding, c.var.signal);
    if (decision === "unauthenticated") {
      const challenge = { headers: { "WWW-Authenticate": 'Bearer realm="lockstep"' } };
      throw new Problem(401, "UNAUTHENTICATED", "the request needs valid credentials", challenge);
    }
    if (decision === "forbidden") {
      throw new Problem(403, "FORBIDDEN", "the credentials do not allow this operation");
    }
    if (decision.principal !== undefined) c.var.logEntry.principal = decision.principal;
  }

  async respond(c: Ctx, route: Route): Promise<Response> {
    const { deadline, signal, inputs, logEntry } = c.var;
    if (deadline.remaining() <= 0) throw timeExceeded();
    // Before the request is counted: bodies that arrive slowly must not keep others from reading.
    const body = route.method === "get" ? undefined : await this.#bodyOf(c);
    using _ = route.access === "open" ? undefined : this.#limiter.enter(limitKeyOf(inputs.params));
    const response = await route.handle({
      ...inputs,
      ...{ body, deadline, signal },
      raw: c.req.raw,
      log: (fields) => Object.assign(logEntry, fields),
    });
    return send(c, response);
  }

  async #bodyOf(c: Ctx): Promise<unknown> {
    using _ = this.#bodies.enter("");
    using limit = limitOf(this.#bodyTimeout, timeExceeded, c.var.signal);
    return await jsonBody(c.req.raw, this.#bodyLimit, limit.signal);
  }

  refuse(c: Ctx, error: unknown): Response {
    const problem = toProblem(error);
    const { logEntry } = c.var;
    logEntry.code = problem.code;
    if (problem.cause !== undefined) {
      const { cause } = problem;
      const { operation = "unknown" } = logEntry;
      if (problem.status >= 500) this.#onError(cause, { requestId: c.get("requestId"), operation });
      logEntry.error ??= redact(cause instanceof Error ? cause.message : String(cause));
    }
    return send(c, {
      status: problem.status,
      body: problemBody(problem, c.get("requestId")),
      headers: problemHeaders(problem),
    });
  }

  /** Sets the deadline of the request, and writes the request to the access log. */
  async observe(c: Ctx, next: () => Promise<void>): Promise<void> {
    const log = listener(this.#options.log);
    const startedAt = instant();
    const logEntry: LogEntry = {};
    const deadline = earlierOf(deadlineIn(this.#timeout), c.env?.deadline);
    using limit = limitOf(Math.max(0, deadline.remaining()), timeExceeded);
    c.set("logEntry", logEntry);
    c.set("deadline", deadline);
    c.set("signal", limit.signal);
    await next();
    log({
      at: new Date(startedAt.wall).toISOString(),
      requestId: c.get("requestId"),
      method: c.req.method,
      path: new URL(c.req.url).pathname,
      operation: "unknown",
      status: c.res.status,
      took: Math.round(elapsedSince(startedAt)),
      ...logEntry,
    });
  }
}

/** Returns the inputs that are readable, and the Problem of an unreadable one. */
function readInputs(
  c: Ctx,
  route: Route | undefined,
): RequestInputs & { readonly problem?: unknown } {
  let inputs: RequestInputs = { params: {}, query: {}, key: "" };
  try {
    const { pathname, search } = new URL(c.req.url);
    const query = queryParams(search);
    const params = route ? pathParams(route.path, pathname, query) : {};
    inputs = { ...inputs, params, query: Object.fromEntries(query) };
    return route?.keyed ? { ...inputs, key: idempotencyKey(c.req.raw.headers) } : inputs;
  } catch (problem) {
    return { ...inputs, problem };
  }
}

/** Returns the key by which concurrent requests are counted. */
function limitKeyOf({ sku, workflow, runId }: Readonly<Record<string, string>>): string {
  return JSON.stringify([sku, workflow, runId]);
}

function earlierOf(a: Deadline, b: Deadline | undefined): Deadline {
  return b ? { remaining: () => Math.min(a.remaining(), b.remaining()) } : a;
}

function send(c: Ctx, { status, body, headers = {} }: RouteResponse): Response {
  if (typeof body === "string" || body instanceof Uint8Array) {
    return c.body(body as string, status, headers);
  }
  const json = { "Content-Type": "application/json", "Cache-Control": "no-store", ...headers };
  return c.body(JSON.stringify(body), status, json);
}
