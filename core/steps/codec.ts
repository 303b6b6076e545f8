import { bytesToHex } from "@noble/hashes/utils.js";
import { stringify } from "safe-stable-stringify";
import superjson from "superjson";
import { LONGEST_VALUE } from "../journal/journal.ts";
import { sha256 } from "../lock/sha256.ts";
import { type ErrorInfo, InvalidValueError, TerminalError, toErrorInfo } from "./errors.ts";

/** The record of a failed attempt has something besides the error, and may have to say more of where its values are. */
const LONGEST_ERROR = LONGEST_VALUE / 2;

/** A value as the journal keeps it: JSON, and in it dates, bigints, maps, sets and undefined as what they are. */
export function encode(value: unknown): string {
  return superjson.stringify(value);
}

/** Throws a TerminalError for a value that no journal can keep, or that is too large for one. */
export function encodeResult(what: string, value: unknown): string {
  const text = tryToEncode(what, value);
  const bytes = bytesIn(text);
  if (bytes <= LONGEST_VALUE) return text;
  throw new TerminalError("TOO_LARGE", `${what} has ${bytes} bytes, the limit is ${LONGEST_VALUE}`);
}

function bytesIn(text: string): number {
  return new TextEncoder().encode(text).length;
}

function tryToEncode(what: string, value: unknown): string {
  try {
    return encode(value);
  } catch (error) {
    throw new InvalidValueError(what, [toErrorInfo(error).message]);
  }
}

export function decode<T>(text: string | undefined): T {
  return text === undefined ? (undefined as T) : superjson.parse<T>(text);
}

export function encodeError(error: unknown): string {
  return encodeInfo(toErrorInfo(error));
}

/** Without its data, if that is too large or nothing that can be kept. */
export function encodeInfo({ data, ...info }: ErrorInfo): string {
  if (data === undefined) return encode(info);
  try {
    const text = encode({ ...info, data });
    return bytesIn(text) <= LONGEST_ERROR ? text : encode(info);
  } catch {
    return encode(info);
  }
}

export function decodeError(text: string | undefined): ErrorInfo {
  return decode<ErrorInfo>(text);
}

/** The same for equal values, whatever the order of their keys: 64 hexadecimal digits. */
export function hashOf(value: unknown): string {
  // Not which of its parts are one and the same object: that says nothing about the value.
  const { json, meta } = superjson.serialize(value);
  const canonical = stringify({ json, types: meta?.values }) ?? "";
  return bytesToHex(sha256(canonical));
}
