import { quote } from "./errors.ts";
import type { Deadline, Millis } from "./time.ts";

/** The longest lock name, in bytes of UTF-8. */
const LONGEST_NAME = 512;

/** The longest ttl, wait or hold: one day. */
export const LONGEST_SPAN: Millis = 86_400_000;

/** The highest generation: with 40 bits of token it fits into 63 bits, the integers of databases. */
export const HIGHEST_GENERATION = 2 ** 23 - 1;

const utf8 = new TextEncoder();

/** Returns the bytes of UTF-8. Most texts are ASCII, and to encode them takes longer than to look at them. */
export function byteLength(text: string): number {
  return /^\p{ASCII}*$/u.test(text) ? text.length : utf8.encode(text).length;
}

/**
 * Throws unless `text` is a string of 1 to `most` bytes of UTF-8 without NUL.
 *
 * Accepted text is used byte for byte, without trimming, case folding or normalisation.
 */
export function checkText(what: string, text: unknown, most: number): asserts text is string {
  if (typeof text !== "string") throw wrongType(what, "a string", text);
  if (text === "") throw new RangeError(`${what} must not be empty`);
  if (text.includes("\0")) throw new RangeError(`${what} ${quote(text)} contains NUL`);
  if (!text.isWellFormed()) throw new RangeError(`${what} ${quote(text)} is not valid Unicode`);
  // A unit of UTF-16 has 3 bytes of UTF-8 at most.
  const bytes = 3 * text.length > most ? byteLength(text) : 0;
  if (bytes > most) {
    throw new RangeError(`${what} ${quote(text)} has ${bytes} bytes, the limit is ${most}`);
  }
}

export function checkName(name: unknown): asserts name is string {
  checkText("lock name", name, LONGEST_NAME);
}

/** Throws unless `span` is a number of milliseconds from `least` to `most`. */
export function checkSpan(
  what: string,
  span: unknown,
  least: Millis,
  most: Millis = LONGEST_SPAN,
): asserts span is Millis {
  if (typeof span !== "number" || Number.isNaN(span)) {
    throw wrongType(what, "a number of milliseconds", span);
  }
  if (span < least || span > most) {
    throw new RangeError(`${what} must be ${least} to ${most} ms, not ${span}`);
  }
}

/** Throws a TypeError with an example unless a store is opened with an object. */
export function checkOpening(call: string, given: unknown, example: string): void {
  if (typeof given !== "object" || given === null) throw cannotOpen(call, given, example);
}

/** Returns the error of a store that is opened with a wrong value. Repeats no text: a URL has a password. */
export function cannotOpen(call: string, given: unknown, example: string): TypeError {
  const wrong =
    typeof given === "string"
      ? 'a URL or another text; open() of "lockstep/open" takes a URL'
      : describeValue(given);
  return new TypeError(`${call} needs ${example}, not ${wrong}`);
}

/** Throws a TypeError unless `signal` is an AbortSignal, of any realm, or missing. */
export function checkSignal(signal: Partial<AbortSignal> | undefined): void {
  const isMissing = signal === undefined || signal === null;
  if (!isMissing && !signal.throwIfAborted) throw wrongType("signal", "an AbortSignal", signal);
}

/** Returns the milliseconds until `deadline`, at least 0, or Infinity. Throws a TypeError for other values. */
export function leftUntil(deadline: Partial<Deadline> | undefined): Millis {
  if (deadline === undefined) return Number.POSITIVE_INFINITY;
  const left = Math.max(0, deadline?.remaining?.() as Millis);
  if (Number.isNaN(left)) throw wrongType("deadline", "one of deadlineIn(…)", deadline);
  return left;
}

export function checkWhole(what: string, value: unknown, least: number, most: number): void {
  if (typeof value !== "number") throw wrongType(what, "a number", value);
  if (!Number.isInteger(value) || value < least || value > most) {
    throw new RangeError(`${what} must be a whole number from ${least} to ${most}, not ${value}`);
  }
}

/** Throws a TypeError unless the value is one of the choices. */
export function checkOneOf(
  what: string,
  value: unknown,
  choices: readonly (string | number)[],
): void {
  if (choices.includes(value as string)) return;
  const all = choices.map((choice) => JSON.stringify(choice));
  const last = all.pop();
  const listed = all.length > 0 ? `${all.join(", ")} or ${last}` : last;
  throw wrongType(what, `${listed}`, value);
}

export function checkFunction(what: string, value: unknown): void {
  if (typeof value !== "function") throw wrongType(what, "a function", value);
}

/** Returns the error for a generation that is the highest already. */
export function noMoreGenerations(): RangeError {
  return new RangeError(`the generation cannot be raised above ${HIGHEST_GENERATION}`);
}

/** Returns the error for a value of another type than the expected one. */
export function wrongType(what: string, expected: string, value: unknown): TypeError {
  return new TypeError(`${what} must be ${expected}, not ${describeValue(value)}`);
}

/** Describes a wrong value for messages. */
export function describeValue(value: unknown): string {
  if (typeof value === "string") return `the string ${quote(value)}`;
  if (typeof value === "number" || value === undefined || value === null) return String(value);
  if (typeof value === "object") return Array.isArray(value) ? "an array" : "an object";
  return `a ${typeof value}`;
}
