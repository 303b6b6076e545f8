import type { AppRequest } from "./request.ts";

type Headers = Readonly<Record<string, string>>;

/** The headers of every response, unless it has its own. */
export const SECURITY_HEADERS: Headers = {
  "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Origin-Agent-Cluster": "?1",
  "Referrer-Policy": "no-referrer",
  // Without includeSubDomains: whether other hosts of the domain speak TLS is not known here.
  "Strict-Transport-Security": "max-age=15552000",
  "X-Content-Type-Options": "nosniff",
  "X-DNS-Prefetch-Control": "off",
  "X-Download-Options": "noopen",
  "X-Frame-Options": "DENY",
  "X-Permitted-Cross-Domain-Policies": "none",
  "X-XSS-Protection": "0",
};

/** Returns the headers that let pages of these origins call the app (CORS). */
export function corsHeaders(origins: readonly string[], { headers }: AppRequest): Headers {
  if (origins.length === 0) return {};
  const origin = headers.get("origin") ?? "";
  const isPublic = origins.includes("*");
  return {
    ...((isPublic || origins.includes(origin)) && {
      "Access-Control-Allow-Origin": isPublic ? "*" : origin,
    }),
    "Access-Control-Expose-Headers": "Idempotent-Replayed, Location, Retry-After, X-Request-Id",
    ...(!isPublic && { Vary: "Origin" }),
  };
}

/** The further headers of the response to a preflight request. */
export const PREFLIGHT_HEADERS: Headers = {
  "Access-Control-Allow-Methods": "GET, HEAD, PUT, POST",
  "Access-Control-Allow-Headers":
    "Authorization, Content-Type, Idempotency-Key, Lockstep-Fence, Prefer",
  "Access-Control-Max-Age": "600",
};
