import ms from "ms";
import { quote } from "../lock/errors.ts";
import type { Millis } from "../lock/time.ts";

/** Milliseconds, or a text such as "200ms", "8s", "15m", "24h", "7d". */
export type Duration = Millis | `${number}${"ms" | "s" | "m" | "h" | "d"}`;

/** The longest sleep, timeout or keep: ten years. */
const LONGEST: Millis = 10 * 365 * 86_400_000;

/** Throws a TypeError or RangeError that names `what`. */
export function toMillis(what: string, duration: Duration, least: Millis = 0): Millis {
  const millis = typeof duration === "number" ? duration : parse(duration);
  if (typeof millis !== "number" || Number.isNaN(millis)) {
    throw new TypeError(
      `${what} must be milliseconds or a text such as "8s", not ${quote(`${duration}`)}`,
    );
  }
  if (millis < least || millis > LONGEST) {
    throw new RangeError(`${what} must be ${least} to ${LONGEST} ms, not ${millis}`);
  }
  return millis;
}

function parse(text: Exclude<Duration, number>): number | undefined {
  // Anything else would be read as milliseconds, or throw an error that names no input.
  return /^\d+(\.\d+)?(ms|s|m|h|d)$/.test(text) ? ms(text) : undefined;
}
