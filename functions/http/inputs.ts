import { checkText } from "../../core/lock/checks.ts";
import { Problem } from "./problem.ts";
import type { RequestHead } from "./request.ts";

/** The path segment that stands for a parameter in the query. */
const PLACEHOLDER = "-";

/**
 * Returns the parameters of a path, byte for byte, by a template such as "/stock/{sku}/history".
 *
 * A path cannot carry every text: clients remove "." and "..", and Amazon's HTTP APIs decode a path before they pass it
 * on, which loses "/", "?" and "%". The query can: `/stock/-/history?sku=..`. Throws a Problem for broken UTF-8.
 *
 * The template is the end of the path; the beginning depends on where the app is mounted.
 */
export function pathParams(
  template: string,
  path: string,
  query: Map<string, string>,
): Record<string, string> {
  const parts = template.split("/").slice(1);
  const segments = path.split("/").slice(-parts.length);
  const params: Record<string, string> = {};
  for (const [i, part] of parts.entries()) {
    const name = /^\{(\w+)\}$/.exec(part)?.[1];
    if (name === undefined) continue;
    const segment = segments[i] ?? "";
    const fromQuery = segment === PLACEHOLDER ? query.get(name) : undefined;
    if (fromQuery !== undefined) query.delete(name);
    params[name] = fromQuery ?? decode(segment);
  }
  return params;
}

/** Returns the members of a query, each at most once. URLSearchParams would read broken UTF-8 as another text. */
export function queryParams(search: string): Map<string, string> {
  const members = new Map<string, string>();
  for (const member of search.replace(/^\?/, "").split("&").filter(Boolean)) {
    const [name = "", ...value] = member.replaceAll("+", " ").split("=");
    const key = decode(name);
    if (members.has(key)) {
      throw new Problem(400, "INVALID", "a member of the query was given more than once");
    }
    members.set(key, decode(value.join("=")));
  }
  return members;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch (error) {
    throw new Problem(400, "BAD_URL", "the URL is not percent-encoded UTF-8", { cause: error });
  }
}

/** Returns the path of a run, for any run id. */
export function runPath(basePath: string, runId: string): string {
  const encoded = encodeURIComponent(runId);
  const isPlain = /^[\w-]+$/.test(runId) && runId !== PLACEHOLDER;
  return `${basePath}/runs/${isPlain ? encoded : `${PLACEHOLDER}?runId=${encoded}`}`;
}

/** The most bytes of a key, which becomes a run id or an operation id. */
const MAX_KEY = 255;

/**
 * Returns the key of a request. A bare key (`order-7`) and the quoted string of the header's draft (`"order-7"`) are the
 * same key. Throws a Problem for a missing or invalid key.
 */
export function idempotencyKey(headers: RequestHead["headers"]): string {
  const header = headers.get("idempotency-key");
  if (header === null) {
    throw new Problem(400, "KEY_MISSING", "this request needs the header Idempotency-Key");
  }
  const key = header.startsWith('"') ? unquote(header) : header;
  // Runtimes decode the other characters of a header differently.
  if (key === undefined || !/^[\x20-\x7e]*$/.test(key)) throw invalid("is not printable ASCII");
  // A comma may join two headers, and runtimes differ in the space after the comma.
  if (key === header && key.includes(",")) throw invalid("has a comma; quote the key");
  try {
    checkText("Idempotency-Key", key, MAX_KEY);
    return key;
  } catch (error) {
    throw new Problem(400, "INVALID_KEY", (error as Error).message);
  }
}

function invalid(problem: string): Problem {
  return new Problem(400, "INVALID_KEY", `the header Idempotency-Key ${problem}`);
}

function unquote(header: string): string | undefined {
  const [, inner] = /^"((?:[^"\\]|\\["\\])*)"$/.exec(header) ?? [];
  return inner?.replace(/\\(["\\])/g, "$1");
}
