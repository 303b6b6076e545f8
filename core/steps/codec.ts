import { createHash } from "node:crypto";
import { stringify } from "safe-stable-stringify";
import superjson from "superjson";
import { type ErrorInfo, toErrorInfo } from "./errors.ts";

/** A value as the journal keeps it: JSON, and in it dates, bigints, maps, sets and undefined as what they are. */
export function encode(value: unknown): string {
  return superjson.stringify(value);
}

export function decode<T>(text: string | undefined): T {
  return text === undefined ? (undefined as T) : superjson.parse<T>(text);
}

export function encodeError(error: unknown): string {
  return encode(toErrorInfo(error));
}

export function decodeError(text: string | undefined): ErrorInfo {
  return decode<ErrorInfo>(text);
}

/** The same for equal values, whatever the order of their keys: 64 hexadecimal digits. */
export function hashOf(value: unknown): string {
  const canonical = stringify(superjson.serialize(value)) ?? "";
  return createHash("sha256").update(canonical).digest("hex");
}
