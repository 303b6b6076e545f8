import * as z from "zod";
import { openApi } from "../openapi.ts";
import type { AppOptions } from "../options.ts";
import { pageFile } from "../page.ts";
import { Problem, SOON } from "../problem.ts";
import { readiness } from "../readiness.ts";
import { retryAfter } from "../retry-after.ts";
import { type Route, route } from "../route.ts";
import { Health, Ready } from "../schemas.ts";

/** What is asked about the service itself. `all` are all routes of the app. */
export function serviceRoutes(options: AppOptions, all: () => readonly Route[]): readonly Route[] {
  const { page, basePath = "" } = options;
  const documented = page ? "open" : "read";
  const ask = readiness(checksOf(options));
  let document: unknown;
  return [
    route({
      operation: "health",
      method: "get",
      path: "/health",
      access: "open",
      tag: "service",
      summary: "Whether the process is up",
      answers: { 200: { description: "it is", schema: Health } },
      handle: async () => ({ status: 200, body: { status: "ok" } }),
    }),
    route({
      operation: "ready",
      method: "get",
      path: "/ready",
      access: "read",
      tag: "service",
      summary: "Whether the stores answer, within two seconds",
      answers: {
        200: { description: "they do", schema: Ready },
        503: { description: "one of them does not", schema: Ready },
      },
      async handle() {
        const checks = await ask();
        const isReady = Object.values(checks).every((check) => check === "ok");
        if (isReady) return { status: 200, body: { status: "ready", checks } };
        return { status: 503, headers: retryAfter(SOON), body: { status: "not-ready", checks } };
      },
    }),
    route({
      operation: "document",
      method: "get",
      path: "/openapi.json",
      access: documented,
      tag: "service",
      summary: "This document",
      answers: { 200: { description: "OpenAPI 3.1", schema: z.looseObject({}) } },
      async handle() {
        document ??= openApi(all(), basePath);
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
            summary: "This document, to read and try out: /docs/index.html",
            params: z.object({ file: z.string() }),
            answers: { 200: { description: "a file of the page", type: "text/html" } },
            problems: [404],
            async handle({ params: { file } }) {
              const found = pageFile(page, file);
              if (found) return found;
              throw new Problem(404, "NOT_FOUND", "the page has no such file");
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
