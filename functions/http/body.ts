import { race } from "../../core/lock/abort.ts";
import { isInexact } from "../inexact.ts";
import { Problem } from "./problem.ts";

/** How deep arrays and objects may be nested. */
const DEEPEST = 64;

/** Names that reach a prototype where an object is copied without care, and that no input needs. */
const FORBIDDEN = new Set(["__proto__", "constructor", "prototype"]);

/**
 * The JSON of a body; undefined where there is none. Throws a Problem for what is no JSON that one should touch, and
 * for what has not come when the signal aborts.
 */
export async function jsonBody(
  request: Request,
  most: number,
  signal: AbortSignal,
): Promise<unknown> {
  const bytes = await arrived(readBytes(request, most), signal);
  if (bytes.byteLength === 0) return undefined;
  // A length that was declared need not be true where no server has counted.
  if (bytes.byteLength > most) throw tooLarge(most);
  checkHeaders(request.headers);
  const value = parse(bytes);
  checkShape(value);
  return value;
}

/** That a client stops half way, or is slow, is no fault of ours; its connection is of no more use. */
async function arrived<T>(reading: Promise<T>, signal: AbortSignal): Promise<T> {
  try {
    return await race(reading, signal);
  } catch (error) {
    if (error instanceof Problem && error !== signal.reason) throw error;
    const more = { headers: { Connection: "close" }, cause: error };
    throw new Problem(408, "BODY_INCOMPLETE", "the body has not come in time, or not all", more);
  }
}

/** Of a body that is too large, so much is still read: a client that is cut off while it sends may miss the answer. */
const MOST_DISCARDED = 4 * 2 ** 20;

async function readBytes(request: Request, most: number): Promise<ArrayBuffer> {
  const { headers } = request;
  const declared = headers.has("transfer-encoding") ? null : headers.get("content-length");
  // Not to be touched then: on Node, a body that somebody has begun to read blocks its connection.
  if (declared !== null && Number(declared) > most) throw tooLarge(most);
  if (declared !== null) return request.arrayBuffer();
  const chunks: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  // Not `for await`: to leave it early ends the connection before there is an answer.
  const reader = request.body?.getReader();
  while (size <= most + MOST_DISCARDED) {
    const { value: chunk } = (await reader?.read()) ?? {};
    if (!chunk) break;
    size += chunk.byteLength;
    if (size <= most) chunks.push(chunk);
  }
  // What was left unread stands in the way of the next request.
  if (size > most + MOST_DISCARDED) throw tooLarge(most, { Connection: "close" });
  if (size > most) throw tooLarge(most);
  return new Blob(chunks).arrayBuffer();
}

function tooLarge(most: number, headers: Readonly<Record<string, string>> = {}): Problem {
  return new Problem(413, "TOO_LARGE", `the body has more than ${most} bytes`, { headers });
}

function checkHeaders(headers: Headers): void {
  const type = headers.get("content-type") ?? "";
  if (!/^application\/([\w.-]+\+)?json *(;|$)/i.test(type)) {
    throw new Problem(415, "NOT_JSON", "the body's Content-Type must be application/json");
  }
  const encoding = headers.get("content-encoding") ?? "identity";
  if (encoding !== "identity") {
    throw new Problem(415, "ENCODED", "the body must not have a Content-Encoding");
  }
}

function parse(bytes: ArrayBuffer): unknown {
  try {
    // With a byte order mark, or with bytes that are no UTF-8, it is no JSON.
    return JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch (error) {
    throw new Problem(400, "MALFORMED", "the body is not JSON in UTF-8", { cause: error });
  }
}

/** Not recursive: what it is there to find would overflow the stack. */
function checkShape(value: unknown): void {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > DEEPEST) {
      throw new Problem(400, "TOO_DEEP", `the body is nested deeper than ${DEEPEST} levels`);
    }
    if (level.some(isInexact)) {
      const detail = "the body has a number that is larger than 2^53 - 1: send it as a text";
      throw new Problem(400, "INEXACT_NUMBER", detail);
    }
    const objects = level.filter((one) => typeof one === "object" && one !== null) as object[];
    for (const key of objects.filter((one) => !Array.isArray(one)).flatMap(Object.keys)) {
      if (!FORBIDDEN.has(key)) continue;
      throw new Problem(400, "FORBIDDEN_NAME", `the body has a member that is called ${key}`);
    }
    level = objects.flatMap((one) => Object.values(one));
  }
}
