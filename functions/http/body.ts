import { race } from "../../core/lock/abort.ts";
import { isInexact } from "../json/inexact.ts";
import { Problem } from "./problem.ts";
import { type AppRequest, tooLarge } from "./request.ts";

/** The maxBytes levels of nested arrays and objects. */
const MAX_DEPTH = 64;

/** Member names that reach a prototype when code copies an object carelessly. No input needs them. */
const FORBIDDEN = new Set(["__proto__", "constructor", "prototype"]);

/**
 * Returns the JSON of a body, or undefined for an empty one. Throws a Problem for an invalid body and for a body that is
 * incomplete when the signal aborts.
 */
export async function jsonBody(
  request: AppRequest,
  maxBytes: number,
  signal: AbortSignal,
): Promise<unknown> {
  const bytes = await readInTime(request.readBody(maxBytes), signal);
  if (bytes.byteLength === 0) return undefined;
  // Without a server that counts, the declared length may be wrong.
  if (bytes.byteLength > maxBytes) throw tooLarge(maxBytes);
  checkHeaders(request.headers);
  const value = parse(bytes);
  checkShape(value);
  return value;
}

/** A client that disconnects or is too slow gets a 408. Its connection cannot be used again. */
async function readInTime<T>(reading: Promise<T>, signal: AbortSignal): Promise<T> {
  try {
    return await race(reading, signal);
  } catch (error) {
    if (error instanceof Problem && error !== signal.reason) throw error;
    const more = { headers: { Connection: "close" }, cause: error };
    throw new Problem(
      408,
      "BODY_INCOMPLETE",
      "the body was incomplete when the time was over",
      more,
    );
  }
}

function checkHeaders(headers: AppRequest["headers"]): void {
  const type = headers.get("content-type") ?? "";
  if (!/^application\/([\w.-]+\+)?json *(;|$)/i.test(type)) {
    throw new Problem(415, "NOT_JSON", "the body's Content-Type must be application/json");
  }
  const encoding = headers.get("content-encoding") ?? "identity";
  if (encoding !== "identity") {
    throw new Problem(415, "ENCODED", "the body must not have a Content-Encoding");
  }
}

function parse(bytes: Uint8Array): unknown {
  try {
    // JSON has neither a byte order mark nor bytes that are not UTF-8.
    return JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch (error) {
    throw new Problem(400, "MALFORMED", "the body is not JSON in UTF-8", { cause: error });
  }
}

/** Checks level by level: recursion would overflow the stack on the deep values that it must find. */
function checkShape(value: unknown): void {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > MAX_DEPTH) {
      throw new Problem(400, "TOO_DEEP", `the body is nested deeper than ${MAX_DEPTH} levels`);
    }
    if (level.some(isInexact)) {
      const detail = "the body has a number above 2^53 - 1; send it as a string";
      throw new Problem(400, "INEXACT_NUMBER", detail);
    }
    const objects = level.filter((one) => typeof one === "object" && one !== null) as object[];
    for (const key of objects.filter((one) => !Array.isArray(one)).flatMap(Object.keys)) {
      if (!FORBIDDEN.has(key)) continue;
      throw new Problem(
        400,
        "FORBIDDEN_NAME",
        `the body has a member with the forbidden name ${key}`,
      );
    }
    level = objects.flatMap((one) => Object.values(one));
  }
}
