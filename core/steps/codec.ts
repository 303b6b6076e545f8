import { bytesToHex } from "@noble/hashes/utils.js";
import { stringify } from "safe-stable-stringify";
import { LONGEST_VALUE } from "../journal/records.ts";
import { sha256 } from "../lock/sha256.ts";
import { isSealed, type Seal, unreadable } from "./envelope.ts";
import {
  type ErrorInfo,
  invalidValue,
  TerminalError,
  toErrorInfo,
  unreadableValue,
} from "./errors.ts";
import { fromText, toComparable, toText } from "./storable.ts";

/** The record of a failed attempt holds more than the error, and encodes the error a second time. */
const LONGEST_ERROR = LONGEST_VALUE / 2;

/** How many bytes a character takes at the most, in UTF-8, in base64, and in what codecs add. */
const SURELY_SHORT = 16;

/** Encodes a value for the journal. Throws a TypeError for a value that decoding would not restore. */
export function encode(value: unknown): string {
  return toText(value);
}

/**
 * Rejects with a TerminalError for a value that cannot be encoded, or that is too large. The limit is that of the value
 * as it will be stored: after `seal`.
 */
export async function encodeResult(
  what: string,
  value: unknown,
  {
    seal,
    longest = LONGEST_VALUE,
  }: { readonly seal?: Seal | undefined; readonly longest?: number },
): Promise<string> {
  const text = tryToEncode(what, value);
  const isShort = text.length < longest / SURELY_SHORT;
  const bytes = isShort ? 0 : byteLength(seal ? await seal(text) : text);
  if (bytes <= longest) return text;
  const advice = "store it elsewhere and return a reference";
  const size = `${bytes} bytes${seal ? " after its codec" : ""}`;
  const problem = `${what} has ${size}, the limit is ${longest}`;
  throw new TerminalError("TOO_LARGE", `${problem}; ${advice}`);
}

function byteLength(text: string): number {
  return new TextEncoder().encode(text).length;
}

function tryToEncode(what: string, value: unknown): string {
  try {
    return encode(value);
  } catch (error) {
    throw invalidValue(what, [toErrorInfo(error).message]);
  }
}

/** Throws UNREADABLE_VALUE for a text that `encode` has not made. */
export function decode<T>(text: string | undefined): T {
  if (text === undefined) return undefined as T;
  if (isSealed(text)) throw unreadable(text);
  try {
    return fromText<T>(text);
  } catch (error) {
    throw unreadableValue(error);
  }
}

export function encodeError(error: unknown): string {
  return encodeInfo(toErrorInfo(error));
}

/** Leaves out data that is too large or cannot be encoded. */
export function encodeInfo({ data, ...info }: ErrorInfo): string {
  if (data === undefined) return encode(info);
  try {
    const text = encode({ ...info, data });
    return byteLength(text) <= LONGEST_ERROR ? text : encode(info);
  } catch {
    return encode(info);
  }
}

export function decodeError(text: string | undefined): ErrorInfo {
  return decode<ErrorInfo>(text);
}

/** Returns 64 hexadecimal digits, the same for equal values in any order of their keys. Errors name the value as `what`. */
export function hashOf(value: unknown, what = "the value"): string {
  return bytesToHex(sha256(stringify(tryToCompare(value, what)) ?? ""));
}

function tryToCompare(value: unknown, what: string) {
  try {
    return toComparable(value);
  } catch (error) {
    throw invalidValue(what, [toErrorInfo(error).message]);
  }
}
