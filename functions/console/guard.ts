import type { MiddlewareHandler } from "hono";
import type { Authorize } from "../http/auth.ts";
import { Problem } from "../http/problem.ts";

/**
 * The header that the page sends with each request, with what the console has served it. A page of another origin cannot
 * send it, without a preflight that fails.
 */
export const OWN_HEADER = "lockstep-console";

/**
 * Refuses requests of other pages: by name rebinding, a foreign page reaches a server on loopback under a name of its
 * own; and it can send requests whose answers it cannot read.
 */
export function fromOwnPage(isLocal: boolean): MiddlewareHandler {
  return async ({ req }, next) => {
    const { host, hostname } = new URL(req.url);
    if (isLocal && !isLoopback(hostname)) {
      throw new Problem(
        421,
        "FOREIGN_HOST",
        "on loopback, the console answers to its address and to localhost alone",
      );
    }
    const origin = req.header("origin");
    const isForeign =
      origin !== undefined && (!URL.canParse(origin) || new URL(origin).host !== host);
    if (isForeign || req.header(OWN_HEADER) === undefined) {
      throw new Problem(403, "FOREIGN_PAGE", "the request does not come from the console's page");
    }
    await next();
  };
}

/** Refuses requests without the token. */
export function withToken(authorize: Authorize): MiddlewareHandler {
  return async ({ req }, next) => {
    const access = req.method === "GET" ? "read" : "write";
    const decision = await authorize(
      req.raw,
      { operation: "console", access, params: {} },
      undefined,
    );
    if (decision === "unauthenticated") {
      throw new Problem(401, "UNAUTHENTICATED", "the console needs its token");
    }
    if (decision === "forbidden")
      throw new Problem(403, "FORBIDDEN", "the token does not allow this");
    await next();
  };
}

export function isLoopback(hostname: string): boolean {
  return (
    hostname === "localhost" ||
    hostname === "[::1]" ||
    hostname === "::1" ||
    /^127(\.\d+){3}$/.test(hostname)
  );
}
