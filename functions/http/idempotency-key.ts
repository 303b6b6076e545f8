import { checkText } from "../../core/lock/checks.ts";
import { Problem } from "./problem.ts";

/** The longest key, in bytes: it becomes a run id or an operation id. */
const LONGEST_KEY = 255;

/**
 * The key of a request, bare (`order-7`) or as the draft of the header has it, a quoted string (`"order-7"`): both
 * are the same key. Throws a Problem where it is missing or is none.
 */
export function idempotencyKey(headers: Headers): string {
  const header = headers.get("idempotency-key");
  if (header === null) {
    throw new Problem(400, "KEY_MISSING", "this request needs the header Idempotency-Key");
  }
  const key = header.startsWith('"') ? unquote(header) : header;
  // What else a header may hold is read as another text by every other runtime.
  if (key === undefined || !/^[\x20-\x7e]*$/.test(key)) throw invalid("is not printable ASCII");
  // Two headers are joined on the way, by some with a space and by others without.
  if (key === header && key.includes(",")) throw invalid("has a comma, and no quotes around it");
  try {
    checkText("Idempotency-Key", key, LONGEST_KEY);
    return key;
  } catch (error) {
    throw invalid((error as Error).message);
  }
}

function invalid(problem: string): Problem {
  return new Problem(400, "INVALID_KEY", `the header Idempotency-Key: ${problem}`);
}

function unquote(header: string): string | undefined {
  const [, inner] = /^"((?:[^"\\]|\\["\\])*)"$/.exec(header) ?? [];
  return inner?.replace(/\\(["\\])/g, "$1");
}
