import { createHash } from "node:crypto";
import { stringify } from "safe-stable-stringify";
import superjson from "superjson";
import { LONGEST_VALUE } from "../journal/journal.ts";
import { type ErrorInfo, TerminalError, toErrorInfo } from "./errors.ts";

/** The record of a failed attempt has something besides the error. */
const LONGEST_ERROR = LONGEST_VALUE - 1_000;

/** A value as the journal keeps it: JSON, and in it dates, bigints, maps, sets and undefined as what they are. */
export function encode(value: unknown): string {
  return superjson.stringify(value);
}

/** Throws a TerminalError for a value that is too large for a journal. */
export function encodeResult(what: string, value: unknown): string {
  const text = encode(value);
  const bytes = Buffer.byteLength(text);
  if (bytes <= LONGEST_VALUE) return text;
  throw new TerminalError("TOO_LARGE", `${what} has ${bytes} bytes, the limit is ${LONGEST_VALUE}`);
}

export function decode<T>(text: string | undefined): T {
  return text === undefined ? (undefined as T) : superjson.parse<T>(text);
}

export function encodeError(error: unknown): string {
  return encodeInfo(toErrorInfo(error));
}

/** Without its data, if that is too large. */
export function encodeInfo({ data, ...info }: ErrorInfo): string {
  const text = encode(data === undefined ? info : { ...info, data });
  return Buffer.byteLength(text) <= LONGEST_ERROR ? text : encode(info);
}

export function decodeError(text: string | undefined): ErrorInfo {
  return decode<ErrorInfo>(text);
}

/** The same for equal values, whatever the order of their keys: 64 hexadecimal digits. */
export function hashOf(value: unknown): string {
  const canonical = stringify(superjson.serialize(value)) ?? "";
  return createHash("sha256").update(canonical).digest("hex");
}
