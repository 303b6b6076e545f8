import { type Context, Hono } from "hono";
import { requestId } from "hono/request-id";
import { secureHeaders } from "hono/secure-headers";
import { deadline as limitOf, race } from "../../core/lock/abort.ts";
import { checkWhole } from "../../core/lock/checks.ts";
import { listener } from "../../core/lock/listener.ts";
import {
  type Deadline,
  deadlineIn,
  elapsedSince,
  instant,
  type Millis,
} from "../../core/lock/time.ts";
import { toMillis } from "../../core/steps/duration.ts";
import { redact } from "../../infra/redact.ts";
import type { AccessEntry } from "./access-log.ts";
import { Admission } from "./admission.ts";
import { type Asked, decide } from "./auth.ts";
import { jsonBody } from "./body.ts";
import { idempotencyKey } from "./idempotency-key.ts";
import type { AppOptions } from "./options.ts";
import { pathParams, queryParams } from "./path.ts";
import { noTime, Problem, problemBody, problemHeaders, toProblem } from "./problem.ts";
import type { Answer, Call, Route } from "./route.ts";
import { runRoutes } from "./routes/runs.ts";
import { serviceRoutes } from "./routes/service.ts";
import { stockRoutes } from "./routes/stock.ts";

/** What a runtime passes to `app.fetch` besides the request; AWS Lambda also `event` and `context`. */
export interface Platform {
  /** The end of the invocation, less what the answer takes. */
  readonly deadline?: Deadline;
}

interface Env {
  Bindings: Platform;
  Variables: {
    readonly requestId: string;
    readonly notes: Notes;
    readonly given: Given;
    readonly deadline: Deadline;

    /** Aborts at the deadline with a Problem. */
    readonly signal: AbortSignal;
  };
}

/** What has come to be known of the request. */
type Notes = { -readonly [Key in keyof AccessEntry]?: AccessEntry[Key] };

/** What stands in a request's URL, and its Idempotency-Key; empty for a route that needs none. */
type Given = Pick<
  Call<Readonly<Record<string, string>>, unknown, unknown>,
  "params" | "query" | "key"
>;

export type App = Hono<Env>;

type Ctx = Context<Env>;

/** All routes of an app with these options. */
export function routesOf(options: AppOptions): readonly Route[] {
  const routes: Route[] = [
    ...runRoutes(options),
    ...stockRoutes(options),
    ...serviceRoutes(options, () => routes),
  ];
  return routes;
}

/**
 * Runs and stock over HTTP, for every runtime: `app.fetch(request)`.
 *
 * Throws a TypeError or RangeError for bad options.
 */
export function createApp(options: AppOptions = {}): App {
  const { basePath = "", page } = options;
  checkBasePath(basePath);
  const service = new Service(options);
  const routes = routesOf(options);
  const app: App = new Hono();
  app.use(requestId(), (c, next) => service.attend(c, next), headers);
  for (const route of routes) {
    const path = basePath + route.path.replace(/\{(\w+)\}/g, ":$1");
    const authorised = async (c: Ctx, next: () => Promise<void>) => {
      await service.authorise(c, route);
      await next();
    };
    app.on(route.method, path, authorised, (c) => service.answer(c, route));
  }
  if (page) app.get(`${basePath}/docs`, (c) => c.redirect(`${basePath}/docs/index.html`));
  refuseOthers(app, service, routes, basePath);
  app.onError((error, c) => service.refuse(c, error));
  return app;
}

const headers = secureHeaders({
  contentSecurityPolicy: { defaultSrc: ["'none'"], frameAncestors: ["'none'"] },
  xFrameOptions: "DENY",
  // For this host alone: what its neighbours speak is not known here.
  strictTransportSecurity: "max-age=15552000",
  // A page of ours has a policy of its own.
  overwrite: false,
});

/** Other methods on known paths, and other paths: who may not see what there is does not learn it here. */
function refuseOthers(
  app: App,
  service: Service,
  routes: readonly Route[],
  basePath: string,
): void {
  for (const [template, same] of Map.groupBy(routes, ({ path }) => path)) {
    const allow = same.map(({ method }) => (method === "get" ? "GET, HEAD" : method.toUpperCase()));
    app.all(basePath + template.replace(/\{(\w+)\}/g, ":$1"), async (c) => {
      await service.authorise(c, undefined);
      const more = { headers: { Allow: allow.join(", ") } };
      throw new Problem(405, "METHOD_NOT_ALLOWED", "there is no such method here", more);
    });
  }
  app.notFound(async (c) => {
    const problem = new Problem(404, "NOT_FOUND", "there is nothing at this path");
    // What is thrown here goes past the headers that every answer has.
    return service.authorise(c, undefined).then(
      () => service.refuse(c, problem),
      (error) => service.refuse(c, error),
    );
  });
}

function checkBasePath(basePath: string): void {
  if (/^(\/[\w.~-]+)*$/.test(basePath)) return;
  throw new TypeError('basePath must be such as "/v1" or "/shop/v1"');
}

class Service {
  readonly #options: AppOptions;
  readonly #admission: Admission;
  readonly #timeout: Millis;
  readonly #bodyLimit: number;

  constructor(options: AppOptions) {
    this.#options = options;
    this.#admission = new Admission(options.limits);
    this.#timeout = toMillis("timeout", options.timeout ?? "25s", 1);
    this.#bodyLimit = options.bodyLimit ?? 262_144;
    checkWhole("bodyLimit", this.#bodyLimit, 0, 2 ** 30);
  }

  /** Throws a Problem unless the request may do what the route does. */
  async authorise(c: Ctx, route: Route | undefined): Promise<void> {
    const { operation = "unknown", access = "read" } = route ?? {};
    c.get("notes").operation = operation;
    const { params, query, key, problem } = read(c, route);
    const asked = { operation, params, ...(key && { key }) };
    if (access !== "open") await this.#authorise(c, { ...asked, access });
    if (problem) throw problem;
    c.set("given", { params, query, key });
  }

  async #authorise(c: Ctx, asked: Asked): Promise<void> {
    const { authorize } = this.#options;
    if (!authorize) {
      throw new Problem(403, "FORBIDDEN", "nobody may do anything here: no `authorize` is set");
    }
    const deciding = decide(() => authorize(c.req.raw, asked, c.env));
    const verdict = await race(deciding, c.get("signal"));
    if (verdict === "unauthenticated") {
      const more = { headers: { "WWW-Authenticate": 'Bearer realm="lockstep"' } };
      throw new Problem(401, "UNAUTHENTICATED", "this needs valid credentials", more);
    }
    if (verdict === "forbidden") {
      throw new Problem(403, "FORBIDDEN", "these credentials do not allow it");
    }
    if (verdict.who !== undefined) c.get("notes").who = verdict.who;
  }

  async answer(c: Ctx, route: Route): Promise<Response> {
    const { deadline, signal, given } = c.var;
    if (deadline.remaining() <= 0) throw noTime();
    using _ = route.access === "open" ? undefined : this.#admission.enter(subjectOf(given.params));
    const hasBody = route.method !== "get";
    const body = hasBody ? await jsonBody(c.req.raw, this.#bodyLimit, signal) : undefined;
    const answer = await route.handle({
      ...given,
      ...{ body, deadline, signal },
      request: c.req.raw,
      note: (known) => Object.assign(c.get("notes"), known),
    });
    return send(c, answer);
  }

  refuse(c: Ctx, error: unknown): Response {
    const problem = toProblem(error);
    const notes = c.get("notes");
    Object.assign(notes, { code: problem.code });
    if (problem.cause !== undefined) {
      const { cause } = problem;
      notes.error ??= redact(cause instanceof Error ? cause.message : String(cause));
    }
    return send(c, {
      status: problem.status,
      body: problemBody(problem, c.get("requestId")),
      headers: problemHeaders(problem),
    });
  }

  /** Watches the clock for the request, and writes it to the log. */
  async attend(c: Ctx, next: () => Promise<void>): Promise<void> {
    const log = listener(this.#options.log);
    const startedAt = instant();
    const notes: Notes = {};
    const deadline = shorter(deadlineIn(this.#timeout), c.env?.deadline);
    using limit = limitOf(Math.max(0, deadline.remaining()), noTime);
    c.set("notes", notes);
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
      ...notes,
    });
  }
}

/** What is given with the request as far as it can be read, and the problem with the rest. */
function read(c: Ctx, route: Route | undefined): Given & { readonly problem?: unknown } {
  let given: Given = { params: {}, query: {}, key: "" };
  try {
    const { pathname, search } = new URL(c.req.url);
    const query = queryParams(search);
    const params = route ? pathParams(route.path, pathname, query) : {};
    given = { ...given, params, query: Object.fromEntries(query) };
    return route?.keyed ? { ...given, key: idempotencyKey(c.req.raw.headers) } : given;
  } catch (problem) {
    return { ...given, problem };
  }
}

/** What requests are counted by. */
function subjectOf({ sku, workflow, runId }: Readonly<Record<string, string>>): string {
  return JSON.stringify([sku, workflow, runId]);
}

function shorter(a: Deadline, b: Deadline | undefined): Deadline {
  return b ? { remaining: () => Math.min(a.remaining(), b.remaining()) } : a;
}

function send(c: Ctx, { status, body, headers = {} }: Answer): Response {
  if (typeof body === "string" || body instanceof Uint8Array) {
    return c.body(body as string, status, headers);
  }
  const json = { "Content-Type": "application/json", "Cache-Control": "no-store", ...headers };
  return c.body(JSON.stringify(body), status, json);
}
