import { fromPayload } from "../../core/journal/ending.ts";
import type { Signal } from "../../core/journal/journal.ts";
import { decode } from "../../core/steps/codec.ts";

/**
 * A value as one line of JSON that any program can read: dates and bigints as text, maps and sets as lists. What is
 * undefined or infinite is left out.
 */
export function toJson(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) => {
    if (typeof part === "bigint") return part.toString();
    if (part instanceof Map || part instanceof Set) return [...part];
    return part === Number.POSITIVE_INFINITY ? undefined : part;
  });
}

export function payloadOf({ name, payload }: Signal): unknown {
  if (!name.startsWith("~child/")) return decode(payload);
  const { value, ...ending } = fromPayload(payload);
  return { ...ending, value: decode(value) };
}

/** Throws a TypeError that names the input. */
export function parseJson(what: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new TypeError(`${what} is not JSON: ${(error as Error).message}`);
  }
}
