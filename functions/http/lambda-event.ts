import type {
  ALBEvent,
  ALBResult,
  APIGatewayProxyEvent,
  APIGatewayProxyEventV2,
  APIGatewayProxyStructuredResultV2,
} from "aws-lambda";
import { getPath } from "hono/utils/url";
import type { AppRequest } from "./request.ts";

/** The event of an HTTP API (payload 2.0 or 1.0), a function URL, a REST API or an Application Load Balancer. */
export type HttpEvent = APIGatewayProxyEventV2 | APIGatewayProxyEvent | ALBEvent;

export type HttpResult = APIGatewayProxyStructuredResultV2 &
  Pick<ALBResult, "multiValueHeaders" | "statusDescription">;

/** The request in an event. */
export interface EventRequest {
  readonly method: string;
  readonly url: URL;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: Buffer | undefined;

  /** The part of the path that stands before the app's own paths: "/prod" for a named stage. */
  readonly prefix: string;
}

/** Names of methods and headers. */
const TOKEN = /^[\w!#$%&'*+.^`|~-]+$/;

/** A client's Host header. One with a path or a query would change those of the URL. */
const HOST = /^([\w.-]+|\[[\da-f:.]+\])(:\d+)?$/i;

/** Undefined for an event that is not a valid request. Throws a TypeError for an event of another source. */
export function eventRequest(event: HttpEvent): EventRequest | undefined {
  if (event?.requestContext === undefined) {
    const sources = "API Gateway, a function URL or a load balancer";
    throw new TypeError(`the event is not from ${sources}; check the function's event source`);
  }
  try {
    return toEventRequest(event);
  } catch {
    return undefined;
  }
}

/** Throws for a URL that cannot be encoded. */
function toEventRequest(event: HttpEvent): EventRequest | undefined {
  const { method, host, query, headers, ...rest } =
    "rawPath" in event ? partsV2(event) : partsV1(event);
  const { path, prefix } = withoutStage(rest);
  const { body, isBase64Encoded } = event;
  const hasBody = body != null && body !== "" && method !== "GET" && method !== "HEAD";
  if (!TOKEN.test(method) || headers.some(([name]) => !TOKEN.test(name))) return undefined;
  return {
    method,
    url: new URL(`https://${host}${encodedPath(path, rest)}${query && `?${query}`}`),
    headers: headers.flatMap(valuesOf),
    body: hasBody ? Buffer.from(body, isBase64Encoded ? "base64" : "utf8") : undefined,
    prefix,
  };
}

/** Makes the request for an app of the user's own. */
export function toRequest({ method, url, headers, body }: EventRequest): Request {
  const all = new Headers();
  for (const [name, value] of headers) all.append(name, value);
  return new Request(url, { method, headers: all, ...(body && { body: new Uint8Array(body) }) });
}

/** Makes the request for the app of this package. */
export function appRequest({ method, url, headers, body }: EventRequest): AppRequest {
  const all = Map.groupBy(headers, ([name]) => name.toLowerCase());
  return {
    method,
    url: url.href,
    path: getPath({ url: url.href } as Request),
    headers: {
      has: (name) => all.has(name.toLowerCase()),
      get: (name) =>
        all
          .get(name.toLowerCase())
          ?.map(([, value]) => value.trim())
          .join(", ") ?? null,
    },
    readBody: async () => body ?? new Uint8Array(),
  };
}

interface EventParts extends EventPath {
  readonly method: string;
  readonly host: string;

  /** Percent-encoded. */
  readonly query: string;
  readonly headers: readonly (readonly [name: string, values: readonly string[]])[];
}

interface EventPath {
  readonly path: string;

  /** The path as the client sent it, if the event has both. */
  readonly sentPath?: string;
  readonly stage: string | undefined;

  /** HTTP APIs decode the path, the other sources do not. */
  readonly isDecoded: boolean;
}

function partsV2(event: APIGatewayProxyEventV2): EventParts {
  const { rawPath, rawQueryString, headers, cookies, requestContext } = event;
  const { domainName, stage, http } = requestContext;
  return {
    method: http.method,
    host: domainName,
    path: rawPath,
    stage,
    // Only the host of the event tells a function URL from an HTTP API.
    isDecoded: !/\.lambda-url\.[\w-]+\.on\.aws$/i.test(domainName),
    query: rawQueryString,
    headers: [...pairsOf(headers), ...(cookies ? [["cookie", cookies] as const] : [])],
  };
}

function partsV1(event: APIGatewayProxyEvent | ALBEvent): EventParts {
  const isBalanced = "elb" in event.requestContext;
  const { domainName, path, stage } =
    event.requestContext as APIGatewayProxyEvent["requestContext"];
  const headers = listsOf(event.multiValueHeaders, event.headers);
  const host = headers.find(([name]) => name.toLowerCase() === "host")?.[1][0] ?? "";
  return {
    method: event.httpMethod,
    host: domainName ?? (HOST.test(host) ? host : "localhost"),
    path: event.path,
    ...(path !== undefined && { sentPath: path }),
    stage,
    isDecoded: (event as { readonly version?: unknown }).version === "1.0",
    query: queryOf(event, isBalanced),
    headers,
  };
}

/** A load balancer passes the query as sent; API Gateway decodes it. */
function queryOf(event: APIGatewayProxyEvent | ALBEvent, isEncoded: boolean): string {
  const encode = isEncoded ? (text: string) => text : encodeURIComponent;
  return listsOf(event.multiValueQueryStringParameters, event.queryStringParameters)
    .flatMap(([name, values]) => values.map((value) => `${encode(name)}=${encode(value)}`))
    .join("&");
}

type Values = Readonly<Record<string, string | undefined>> | null | undefined;
type Lists = Readonly<Record<string, readonly string[] | null | undefined>> | null | undefined;

/** An event has lists of values, single values or both. The last of several values is the single one. */
function listsOf(lists: Lists, values: Values): EventParts["headers"] {
  if (!lists) return pairsOf(values);
  return Object.entries(lists).map(([name, list]) => [name, list ?? []] as const);
}

function pairsOf(values: Values): EventParts["headers"] {
  return Object.entries(values ?? {}).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, [value]] as const],
  );
}

/** The path of an HTTP API begins with its stage; a REST API has the stage in another member of the event. */
function withoutStage({ path, sentPath = path, stage }: EventPath) {
  const inPath = `/${stage}`;
  // A REST API: the path as sent has its stage, or the base path of a domain, before the path.
  const hasPrefix = sentPath !== path && sentPath.endsWith(path);
  if (hasPrefix) return { path, prefix: sentPath.slice(0, -path.length) };
  const hasStage = typeof stage === "string" && stage !== "" && stage !== "$default";
  if (hasStage && (path === inPath || path.startsWith(`${inPath}/`))) {
    return { path: path.slice(inPath.length) || "/", prefix: inPath };
  }
  return { path, prefix: "" };
}

/** A decoded path has lost an encoded slash; the query can carry it. */
function encodedPath(path: string, { isDecoded }: EventPath): string {
  return isDecoded ? path.split("/").map(encodeURIComponent).join("/") : path;
}

function valuesOf([name, values]: EventParts["headers"][number]): EventRequest["headers"] {
  const all = name.toLowerCase() === "cookie" ? [values.join("; ")] : values;
  return all.map((value) => [name, bytesOf(value)] as const);
}

/** A header of a Request has one character per byte, as in Node's server. The event has the decoded UTF-8. */
function bytesOf(value: string): string {
  return Buffer.from(value).toString("latin1");
}

const TEXT = /^(text\/|application\/([\w.-]+\+)?(json|xml|javascript))/i;

export interface EventResponse {
  readonly status: number;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: Buffer;
}

/** Converts a response to the form that the event's source reads. `prefix` is that of the request. */
export function toResult(response: EventResponse, event: HttpEvent, prefix: string): HttpResult {
  const { status, body } = response;
  const headers = response.headers.map(
    ([name, value]) =>
      [name.toLowerCase(), /^location$/i.test(name) ? located(value, prefix) : value] as const,
  );
  const type = headers.find(([name]) => name === "content-type")?.[1] ?? "";
  const isText = body.length === 0 || TEXT.test(type);
  return {
    statusCode: status,
    ...resultHeaders(headers, event),
    body: body.toString(isText ? "utf8" : "base64"),
    isBase64Encoded: !isText,
    ...("elb" in event.requestContext && { statusDescription: descriptionOf(status) }),
  };
}

function resultHeaders(headers: EventResponse["headers"], event: HttpEvent) {
  const cookies = headers.filter(([name]) => name === "set-cookie").map(([, value]) => value);
  const others = headers.filter(([name]) => name !== "set-cookie");
  const single = Object.fromEntries(others);
  if ("rawPath" in event) return { headers: single, ...(cookies.length > 0 && { cookies }) };
  if (event.multiValueHeaders) {
    const lists = Object.fromEntries(others.map(([name, value]) => [name, [value]]));
    return {
      multiValueHeaders: { ...lists, ...(cookies.length > 0 && { "set-cookie": cookies }) },
    };
  }
  // The format takes one cookie.
  const [cookie] = cookies;
  return { headers: { ...single, ...(cookie !== undefined && { "set-cookie": cookie }) } };
}

function located(location: string, prefix: string): string {
  return /^\/(?!\/)/.test(location) ? prefix + location : location;
}

/** A load balancer wants the status with a text. */
function descriptionOf(status: number): string {
  return `${status} ${status >= 200 && status < 300 ? "OK" : "Error"}`;
}
