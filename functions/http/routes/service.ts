import * as z from "zod";
import { deadline, noAnswer, race } from "../../../core/lock/abort.ts";
import type { Millis } from "../../../core/lock/time.ts";
import { type AppOptions, type DocsPage, type HealthCheck, newestOf } from "../options.ts";
import { Problem, RETRY_SOON, retryAfter } from "../problem.ts";
import { type Route, type RouteResponse, route } from "../route.ts";
import { Health, Ready } from "../schemas.ts";

/** Routes about the service itself. `all` returns all routes of the app. */
export function serviceRoutes(options: AppOptions, all: () => readonly Route[]): readonly Route[] {
  const { page } = options;
  const documentAccess = page ? "open" : "read";
  const check = readinessProbe(checksOf(options));
  let document: unknown;
  return [
    route({
      operation: "health",
      method: "get",
      path: "/health",
      access: "open",
      tag: "service",
      summary: "Liveness of the process",
      responses: { 200: { description: "the process is up", schema: Health } },
      handle: async () => ({ status: 200, body: { status: "ok" } }),
    }),
    route({
      operation: "ready",
      method: "get",
      path: "/ready",
      access: "read",
      tag: "service",
      summary: "Readiness: the stores answer within two seconds",
      responses: {
        200: { description: "all stores answer", schema: Ready },
        503: { description: "a store does not answer", schema: Ready },
      },
      async handle() {
        const checks = await check();
        const isReady = Object.values(checks).every((result) => result === "ok");
        if (isReady) return { status: 200, body: { status: "ready", checks } };
        return {
          status: 503,
          headers: retryAfter(RETRY_SOON),
          body: { status: "not-ready", checks },
        };
      },
    }),
    route({
      operation: "document",
      method: "get",
      path: "/openapi.json",
      access: documentAccess,
      tag: "service",
      summary: "This document",
      responses: { 200: { description: "OpenAPI 3.1", schema: z.looseObject({}) } },
      async handle() {
        // On request: its packages would be a part of each cold start.
        const { openApi } = await import("../openapi.ts");
        document ??= openApi(all(), newestOf(options.workflows));
        return { status: 200, body: document };
      },
    }),
    ...(page
      ? [
          route({
            operation: "page",
            method: "get",
            path: "/docs/{file}",
            access: "open",
            tag: "service",
            summary: "This document as an interactive page: /docs/index.html",
            params: z.object({ file: z.string() }),
            responses: { 200: { description: "a file of the page", type: "text/html" } },
            problems: [404],
            async handle({ params: { file } }) {
              const found = pageFile(page, file);
              if (found) return found;
              throw new Problem(404, "NOT_FOUND", "the page does not have this file");
            },
          }),
        ]
      : []),
  ];
}

function checksOf({ runtime, inventory, locks, checks }: AppOptions) {
  return {
    ...(runtime && { journal: () => runtime.journal.list({ limit: 1 }) }),
    ...(inventory && { inventory: () => inventory.get("ready") }),
    ...(locks && { locks: () => locks.inspect("ready") }),
    ...checks,
  };
}

type CheckResults = Readonly<Record<string, "ok" | "failed">>;

/** Runs all checks at once. Concurrent callers share one run. */
function readinessProbe(
  checks: Readonly<Record<string, HealthCheck>>,
): () => Promise<CheckResults> {
  let running: Promise<CheckResults> | undefined;
  return () => {
    running ??= runChecks(checks).finally(() => {
      running = undefined;
    });
    return running;
  };
}

async function runChecks(checks: Readonly<Record<string, HealthCheck>>): Promise<CheckResults> {
  const results = Object.entries(checks).map(async ([name, check]) => [name, await run(check)]);
  return Object.fromEntries(await Promise.all(results));
}

/** The time in which a store must answer. */
const CHECK_TIMEOUT: Millis = 2_000;

async function run(check: HealthCheck): Promise<"ok" | "failed"> {
  using limit = deadline(CHECK_TIMEOUT, noAnswer);
  try {
    await race(check(), limit.signal);
    return "ok";
  } catch {
    return "failed";
  }
}

/** The page loads only its own files, and the data that it shows cannot run scripts. Swagger UI sets inline styles. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

function pageFile({ files }: DocsPage, name: string): RouteResponse | undefined {
  const file = files.get(name);
  if (!file) return undefined;
  const headers = { "Content-Type": file.type, "Content-Security-Policy": POLICY };
  return { status: 200, body: file.body, headers };
}
