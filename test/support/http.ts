import { Ajv2020, type AnySchemaObject } from "ajv/dist/2020.js";
import { onTestFinished } from "vitest";
import { createApp, routesOf } from "../../functions/http/app.ts";
import { bearer } from "../../functions/http/auth.ts";
import { openApi } from "../../functions/http/openapi.ts";
import type { AccessLogEntry, AppOptions } from "../../functions/http/options.ts";
import type { Route } from "../../functions/http/route.ts";
import { serveHttp } from "../../functions/http/server.ts";

export const TOKEN = "canary-token-of-everything";
export const READ_TOKEN = "canary-token-that-reads";

export interface Said {
  readonly status: number;
  readonly headers: Headers;

  // biome-ignore lint/suspicious/noExplicitAny: each test expects another body
  readonly body: any;
  readonly text: string;
}

export interface RequestOptions {
  readonly key?: string;
  readonly body?: unknown;

  /** Sent instead of `body`. */
  readonly raw?: string | Uint8Array | ReadableStream;
  readonly headers?: Readonly<Record<string, string>>;

  /** An empty token sends no Authorization header. */
  readonly token?: string;
  readonly signal?: AbortSignal;
}

/** All responses and log lines of the servers of a test file. */
export const everythingSaid: string[] = [];

/** Serves the app over real HTTP until the test ends, and checks each response against the OpenAPI document. */
export async function serving(options: AppOptions) {
  const log: AccessLogEntry[] = [];
  const given: AppOptions = {
    authorize: bearer([
      { token: TOKEN, principal: "shop" },
      { token: READ_TOKEN, scopes: ["read"], principal: "screen" },
    ]),
    log(entry) {
      log.push(entry);
      everythingSaid.push(JSON.stringify(entry));
    },
    ...options,
  };
  const server = await serveHttp(createApp(given));
  const routes = routesOf(given);
  const check = documented(routes, openApi(routes, []));
  onTestFinished(() => server.close("0s"));
  const ask = async (method: string, path: string, request: RequestOptions = {}): Promise<Said> => {
    const response = await fetch(server.url + path, toInit(method, request));
    const text = await response.text();
    everythingSaid.push(`${JSON.stringify([...response.headers])} ${text}`);
    const type = response.headers.get("content-type") ?? "";
    const body = /json/.test(type) && text ? JSON.parse(text) : undefined;
    const said = { status: response.status, headers: response.headers, body, text };
    check(log.at(-1)?.operation, said);
    return said;
  };
  return { url: server.url, log, ask, close: (grace: number) => server.close(grace) };
}

function toInit(
  method: string,
  { key, body, raw, headers, token = TOKEN, signal }: RequestOptions,
): RequestInit {
  const sent = raw ?? (body === undefined ? undefined : JSON.stringify(body));
  return {
    method,
    headers: {
      ...(token && { authorization: `Bearer ${token}` }),
      ...(sent !== undefined && { "content-type": "application/json" }),
      ...(key !== undefined && { "idempotency-key": key }),
      ...headers,
    },
    ...(sent !== undefined && { body: sent, duplex: "half" }),
    ...(signal && { signal }),
  } as RequestInit;
}

/** Throws unless the document has the status and the schema of the response. */
function documented(routes: readonly Route[], document: unknown) {
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  ajv.addSchema(document as AnySchemaObject, "document");
  return (operation: string | undefined, { status, headers, body }: Said): void => {
    const route = routes.find((one) => one.operation === operation);
    if (!route || body === undefined) return;
    const type = headers.get("content-type") ?? "";
    const place = ["paths", route.path, route.method, "responses", status, "content", type];
    const pointer = [...place, "schema"].map((part) => String(part).replaceAll("/", "~1"));
    const isValid = ajv.getSchema(`document#/${pointer.map(encodeURIComponent).join("/")}`);
    if (!isValid) throw new Error(`${operation} has no answer ${status} ${type} in its document`);
    if (isValid(body)) return;
    throw new Error(`${operation} answers ${status} with ${ajv.errorsText(isValid.errors)}`);
  };
}
