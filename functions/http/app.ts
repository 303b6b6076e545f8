import { Hono } from "hono";
import { TrieRouter } from "hono/router/trie-router";
import { deadline as limitOf, race } from "../../core/lock/abort.ts";
import { checkFunction, checkOneOf, checkWhole, wrongType } from "../../core/lock/checks.ts";
import { deadlineIn, toMillis } from "../../core/lock/duration.ts";
import { quote } from "../../core/lock/errors.ts";
import { checkSecret } from "../../core/lock/fence.ts";
import { listener } from "../../core/lock/listener.ts";
import { checkOptionNames } from "../../core/lock/options.ts";
import { type Deadline, elapsedSince, instant, type Millis } from "../../core/lock/time.ts";
import { redact } from "../../infra/redact.ts";
import { logFailure } from "../telemetry/log-line.ts";
import { type AuthorizationRequest, callAuthorize } from "./auth.ts";
import { jsonBody } from "./body.ts";
import { idempotencyKey, pathParams, queryParams } from "./inputs.ts";
import {
  type AccessLogEntry,
  APP_OPTIONS,
  type AppOptions,
  BUSY_STATUSES,
  FAILED_STATUSES,
  REQUEST_LIMITS,
} from "./options.ts";
import { Problem, problemBody, problemHeaders, timeExceeded, toProblem } from "./problem.ts";
import { type AppRequest, type AppResponse, fetchRequest, fetchResponse } from "./request.ts";
import { RequestLimiter } from "./request-limiter.ts";
import { corsHeaders, PREFLIGHT_HEADERS, SECURITY_HEADERS } from "./response-headers.ts";
import type { Route, RouteResponse } from "./route.ts";
import { limitRoutes } from "./routes/limits.ts";
import { runRoutes } from "./routes/runs.ts";
import { serviceRoutes } from "./routes/service.ts";
import { stockRoutes } from "./routes/stock.ts";

/** The second argument of `app.fetch`. AWS Lambda adds `event` and `context`. */
export interface Platform {
  /** The end of the invocation minus the reserve for the response. */
  readonly deadline?: Deadline;
}

/** One request on its way through the app. */
interface Exchange {
  readonly request: AppRequest;
  readonly platform: Platform;
  readonly requestId: string;
  readonly logEntry: LogEntry;
  readonly deadline: Deadline;

  /** Aborts at the deadline with a Problem. */
  readonly signal: AbortSignal;
}

/** The fields that the access log already has for the request. */
type LogEntry = { -readonly [Key in keyof AccessLogEntry]?: AccessLogEntry[Key] };

/** The inputs in a request's URL, and its Idempotency-Key; empty for a route without one. */
interface RequestInputs {
  readonly params: Readonly<Record<string, string>>;
  readonly query: unknown;
  readonly key: string;
}

export type App = Hono<{ Bindings: Platform }> & {
  /**
   * Answers without the `Request` and `Response` of the runtime.
   *
   * @internal
   */
  answer(request: AppRequest, platform?: Platform): Promise<AppResponse>;
};

/** Returns all routes of an app with these options. */
export function routesOf(options: AppOptions): readonly Route[] {
  const routes: Route[] = [
    ...runRoutes(options),
    ...limitRoutes(options),
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
  checkOptionNames("createApp", options, APP_OPTIONS);
  checkOptionNames("limits", options.limits, REQUEST_LIMITS);
  checkBasePath(options.basePath ?? "");
  checkList("origins", options.origins);
  checkList("workflows", options.workflows);
  options.origins?.forEach(checkOrigin);
  for (const one of options.workflows ?? []) {
    if (!one?.prepare) throw wrongType("a workflow", "made by workflow(…)", one);
  }
  checkStatuses(options);
  for (const name of ["authorize", "log", "onError"] as const) {
    if (options[name] !== undefined) checkFunction(name, options[name]);
  }
  if (options.secret !== undefined) checkSecret(options.secret);
  const pipeline = new RequestPipeline(options);
  const answer = (request: AppRequest, platform?: Platform) => pipeline.answer(request, platform);
  const app = new Hono<{ Bindings: Platform }>();
  app.all("*", async (c) => fetchResponse(await answer(fetchRequest(c), c.env)));
  return Object.assign(app, { answer });
}

function checkOrigin(origin: string): void {
  if (typeof origin !== "string") throw wrongType("an origin", "a string", origin);
  if (origin === "*" || (URL.canParse(origin) && new URL(origin).origin === origin)) return;
  const example = 'such as "https://shop.example", or "*"';
  throw new TypeError(`origins must be origins ${example}, not ${quote(origin)}`);
}

function checkList(option: string, list: readonly unknown[] | undefined): void {
  if (list !== undefined && !Array.isArray(list)) throw wrongType(option, "a list", list);
}

function checkStatuses({ busyStatus, statuses = {} }: AppOptions): void {
  if (busyStatus !== undefined) checkOneOf("busyStatus", busyStatus, BUSY_STATUSES);
  if (typeof statuses !== "object" || statuses === null) {
    throw wrongType("statuses", "an object", statuses);
  }
  for (const [code, status] of Object.entries(statuses)) {
    checkOneOf(`statuses.${code}`, status, FAILED_STATUSES);
  }
}

const NO_PAGE =
  "the page is not set up: npm install swagger-ui-dist, and create the app with `page: await swaggerPage()`, which lockstep/http/node exports";

function checkBasePath(basePath: string): void {
  if (typeof basePath === "string" && /^(\/[\w.~-]+)*$/.test(basePath)) return;
  throw new TypeError('basePath must be "" or a path such as "/v1" or "/shop/v1"');
}

const logHidden: NonNullable<AppOptions["onError"]> = (error, at) =>
  logFailure("error", { ...at, error });

class RequestPipeline {
  readonly #options: AppOptions;
  readonly #router: TrieRouter<Target>;
  readonly #limiter: RequestLimiter;
  readonly #bodies: RequestLimiter;
  readonly #timeout: Millis;
  readonly #bodyTimeout: Millis;
  readonly #bodyLimit: number;
  readonly #onError: NonNullable<AppOptions["onError"]>;

  constructor(options: AppOptions) {
    this.#options = options;
    this.#router = routerOf(options);
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
    this.#onError = listener(options.onError ?? logHidden);
  }

  /** Answers the request, and writes it to the access log. */
  async answer(request: AppRequest, platform: Platform = {}): Promise<AppResponse> {
    const log = listener(this.#options.log);
    const startedAt = instant();
    const logEntry: LogEntry = {};
    const requestId = requestIdOf(request);
    const deadline = earlierOf(deadlineIn(this.#timeout), platform.deadline);
    using limit = limitOf(Math.max(0, deadline.remaining()), timeExceeded);
    const { signal } = limit;
    const exchange = { request, platform, requestId, logEntry, deadline, signal };
    const response = await this.#answer(exchange).catch((error) => this.#refuse(exchange, error));
    log({
      at: new Date(startedAt.wall).toISOString(),
      requestId,
      method: request.method,
      path: new URL(request.url).pathname,
      operation: "unknown",
      status: response.status,
      took: Math.round(elapsedSince(startedAt)),
      ...logEntry,
    });
    return {
      ...response,
      headers: {
        "X-Request-Id": requestId,
        ...SECURITY_HEADERS,
        ...corsHeaders(this.#options.origins ?? [], request),
        ...response.headers,
      },
      body: request.method === "HEAD" ? null : response.body,
    };
  }

  async #answer(exchange: Exchange): Promise<AppResponse> {
    const { page, origins = [], basePath = "" } = this.#options;
    const { method, path } = exchange.request;
    if (method === "OPTIONS" && origins.length > 0) {
      return { status: 204, headers: PREFLIGHT_HEADERS, body: null };
    }
    const [matches] = this.#router.match(method === "HEAD" ? "GET" : method, path);
    const { route, allow } = matches[0]?.[0] ?? {};
    const isPage = path === `${basePath}/docs`;
    if (page && isPage && (method === "GET" || method === "HEAD")) {
      return { status: 302, headers: { Location: `${path}/index.html` }, body: null };
    }
    const inputs = await this.#authorise(exchange, route);
    if (route) return this.#respond(exchange, route, inputs);
    if (allow === undefined) {
      throw new Problem(404, "NOT_FOUND", isPage ? NO_PAGE : "the path does not exist");
    }
    const allowed = { headers: { Allow: allow } };
    throw new Problem(405, "METHOD_NOT_ALLOWED", "the path does not have this method", allowed);
  }

  /** Returns the inputs of an authorised request. An unauthorised client does not learn which paths exist. */
  async #authorise(exchange: Exchange, route: Route | undefined): Promise<RequestInputs> {
    const { operation = "unknown", access = "read" } = route ?? {};
    exchange.logEntry.operation = operation;
    const { problem, ...inputs } = readInputs(exchange.request, route);
    const { params, key } = inputs;
    const asked = { operation, params, ...(key && { key }) };
    if (access !== "open") await this.#decide(exchange, { ...asked, access });
    if (problem) throw problem;
    return inputs;
  }

  async #decide(exchange: Exchange, asked: AuthorizationRequest): Promise<void> {
    const { authorize } = this.#options;
    if (!authorize) {
      throw new Problem(
        403,
        "FORBIDDEN",
        "the server allows no requests: its option `authorize` is not set",
      );
    }
    const { request, platform, signal, logEntry } = exchange;
    const deciding = callAuthorize(() => authorize(request, asked, platform));
    const decision = await race(deciding, signal);
    if (decision === "unauthenticated") {
      const challenge = { headers: { "WWW-Authenticate": 'Bearer realm="lockstep"' } };
      throw new Problem(401, "UNAUTHENTICATED", "the request needs valid credentials", challenge);
    }
    if (decision === "forbidden") {
      throw new Problem(403, "FORBIDDEN", "the credentials do not allow this operation");
    }
    if (decision.principal !== undefined) logEntry.principal = decision.principal;
  }

  async #respond(exchange: Exchange, route: Route, inputs: RequestInputs): Promise<AppResponse> {
    const { request, requestId, deadline, signal, logEntry } = exchange;
    if (deadline.remaining() <= 0) throw timeExceeded();
    // Before the request is counted: bodies that arrive slowly must not keep others from reading.
    const body = route.method === "get" ? undefined : await this.#bodyOf(exchange);
    using _ = route.access === "open" ? undefined : this.#limiter.enter(limitKeyOf(inputs.params));
    const response = await route.handle({
      ...inputs,
      ...{ body, deadline, signal },
      headers: request.headers,
      at: { requestId, operation: route.operation },
      hide: (error) => this.#reportCause(exchange, toProblem(error)),
      log: (fields) => Object.assign(logEntry, fields),
    });
    return toResponse(response);
  }

  async #bodyOf({ request, signal }: Exchange): Promise<unknown> {
    using _ = this.#bodies.enter("");
    using limit = limitOf(this.#bodyTimeout, timeExceeded, signal);
    return await jsonBody(request, this.#bodyLimit, limit.signal);
  }

  #refuse(exchange: Exchange, error: unknown): AppResponse {
    const problem = toProblem(error);
    exchange.logEntry.code = problem.code;
    this.#reportCause(exchange, problem);
    return toResponse({
      status: problem.status,
      body: problemBody(problem, exchange.requestId),
      headers: problemHeaders(problem),
    });
  }

  #reportCause({ logEntry, requestId }: Exchange, { cause, status }: Problem): void {
    if (cause === undefined) return;
    const { operation = "unknown" } = logEntry;
    if (status >= 500) this.#onError(cause, { requestId, operation });
    logEntry.error ??= redact(cause instanceof Error ? cause.message : String(cause));
  }
}

/** A route, or the methods that a path has instead. */
interface Target {
  readonly route?: Route;
  readonly allow?: string;
}

function routerOf(options: AppOptions): TrieRouter<Target> {
  const { basePath = "" } = options;
  const router = new TrieRouter<Target>();
  const routes = routesOf(options);
  const pathOf = (template: string) => basePath + template.replace(/\{(\w+)\}/g, ":$1");
  for (const route of routes) router.add(route.method.toUpperCase(), pathOf(route.path), { route });
  for (const [template, methods] of Map.groupBy(routes, ({ path }) => path)) {
    const allow = methods.map(({ method }) =>
      method === "get" ? "GET, HEAD" : method.toUpperCase(),
    );
    router.add("ALL", pathOf(template), { allow: allow.join(", ") });
  }
  return router;
}

/** Returns the id that the client or a gateway has given, or a new one. */
function requestIdOf({ headers }: AppRequest): string {
  const given = headers.get("x-request-id") ?? "";
  return /^[\w=-]{1,255}$/.test(given) ? given : crypto.randomUUID();
}

/** Returns the inputs that are readable, and the Problem of an unreadable one. */
function readInputs(
  { url, headers }: AppRequest,
  route: Route | undefined,
): RequestInputs & { readonly problem?: unknown } {
  let inputs: RequestInputs = { params: {}, query: {}, key: "" };
  try {
    const { pathname, search } = new URL(url);
    const query = queryParams(search);
    const params = route ? pathParams(route.path, pathname, query) : {};
    inputs = { ...inputs, params, query: Object.fromEntries(query) };
    return route?.keyed ? { ...inputs, key: idempotencyKey(headers) } : inputs;
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

function toResponse({ status, body, headers = {} }: RouteResponse): AppResponse {
  if (typeof body === "string") return { status, headers, body };
  if (body instanceof Uint8Array) return { status, headers, body: body as Uint8Array<ArrayBuffer> };
  const json = { "Content-Type": "application/json", "Cache-Control": "no-store", ...headers };
  return { status, headers: json, body: JSON.stringify(body) };
}
