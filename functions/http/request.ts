import type { Context } from "hono";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import { Problem } from "./problem.ts";

/** The part of a request before its body. A `Request` is one. */
export interface RequestHead {
  readonly method: string;

  /** Absolute, and percent-encoded. */
  readonly url: string;

  /** The values of a header that occurs several times are joined. */
  readonly headers: Pick<Headers, "get" | "has">;
}

/** A request as the app reads it, of any runtime. The `Request` of Node takes longer to load than all of the app. */
export interface AppRequest extends RequestHead {
  /** The decoded path below the place where the app is mounted, for the router. */
  readonly path: string;

  /** Rejects with a Problem for a body of more than `maxBytes`, if the body's length is known before it is read. */
  readBody(maxBytes: number): Promise<Uint8Array>;
}

/** A response, for any runtime. */
export interface AppResponse {
  readonly status: ContentfulStatusCode | 204 | 302;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Uint8Array<ArrayBuffer> | null;
}

/** Reads the request of a runtime with `fetch`. */
export function fetchRequest({ req }: Context): AppRequest {
  const { raw, path, routePath } = req;
  const { method, url, headers } = raw;
  // The path of the route is that of the place where the app is mounted, and "*".
  const mounted = routePath.split("/").length - 2;
  const below = path.split("/").slice(mounted + 1);
  const readBody = (maxBytes: number) => readBytes(raw, maxBytes);
  return { method, url, headers, path: `/${below.join("/")}`, readBody };
}

/** The bytes of an oversized body that are read and discarded. A client that is cut off may miss the response. */
const MAX_DISCARDED = 4 * 2 ** 20;

async function readBytes(request: Request, maxBytes: number): Promise<Uint8Array> {
  const { headers } = request;
  const declared = headers.has("transfer-encoding") ? null : headers.get("content-length");
  // The body stays unread: on Node, a partly read body blocks its connection.
  if (declared !== null && Number(declared) > maxBytes) throw tooLarge(maxBytes);
  if (declared !== null) return new Uint8Array(await request.arrayBuffer());
  const chunks: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  // Leaving a `for await` early would close the connection before the response.
  const reader = request.body?.getReader();
  while (size <= maxBytes + MAX_DISCARDED) {
    const { value: chunk } = (await reader?.read()) ?? {};
    if (!chunk) break;
    size += chunk.byteLength;
    if (size <= maxBytes) chunks.push(chunk);
  }
  // The unread rest would block the next request on the connection.
  if (size > maxBytes + MAX_DISCARDED) throw tooLarge(maxBytes, { Connection: "close" });
  if (size > maxBytes) throw tooLarge(maxBytes);
  return new Uint8Array(await new Blob(chunks).arrayBuffer());
}

export function tooLarge(
  maxBytes: number,
  headers: Readonly<Record<string, string>> = {},
): Problem {
  return new Problem(413, "TOO_LARGE", `the body has more than ${maxBytes} bytes`, { headers });
}

/** Makes the response of a runtime with `fetch`. */
export function fetchResponse({ status, headers, body }: AppResponse): Response {
  return new Response(body, { status, headers });
}
