import { Problem } from "./problem.ts";

/** What stands in a path for a parameter that the query gives. */
const STAND_IN = "-";

/**
 * The parameters of a path, byte for byte, by a template such as "/stock/{sku}/history".
 *
 * Some texts cannot stand in a path: "." and ".." are removed by every client, and Amazon's HTTP APIs decode a path
 * before they pass it on, so that behind them "/", "?" and "%" are lost. The query carries anything:
 * `/stock/-/history?sku=..`. Throws a Problem for what is not UTF-8.
 *
 * The template is the end of the path: what comes before it is up to where the app is mounted.
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
    const instead = segment === STAND_IN ? query.get(name) : undefined;
    if (instead !== undefined) query.delete(name);
    params[name] = instead ?? decode(segment);
  }
  return params;
}

/** The members of a query, each at most once. Not URLSearchParams: that reads broken UTF-8 as another text. */
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

/** The path of a run, however it is called. */
export function runPath(basePath: string, runId: string): string {
  const encoded = encodeURIComponent(runId);
  const isPlain = /^[\w-]+$/.test(runId) && runId !== STAND_IN;
  return `${basePath}/runs/${isPlain ? encoded : `${STAND_IN}?runId=${encoded}`}`;
}
