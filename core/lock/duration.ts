import ms from "ms";
import { checkSpan, describeValue } from "./checks.ts";
import { type Deadline, elapsedSince, instant, type Millis } from "./time.ts";

/** Milliseconds, or a text such as "200ms", "8s", "15m", "24h", "7d". */
export type Duration = Millis | `${number}${"ms" | "s" | "m" | "h" | "d"}`;

/** The longest sleep, timeout or keep: ten years. */
const LONGEST: Millis = 10 * 365 * 86_400_000;

/** Returns the duration in milliseconds. Throws a TypeError or RangeError that names `what` and its limits. */
export function toMillis(
  what: string,
  duration: Duration,
  least: Millis = 0,
  most: Millis = LONGEST,
): Millis {
  const millis = typeof duration === "string" ? parse(duration) : duration;
  if (typeof millis !== "number" || Number.isNaN(millis)) {
    const problem = `not ${describeValue(duration)}`;
    throw new TypeError(`${what} must be milliseconds or a text such as "8s", ${problem}`);
  }
  checkSpan(what, millis, least, most);
  return millis;
}

/** Returns a deadline `span` from now, by both clocks. Throws as `toMillis` does. */
export function deadlineIn(span: Duration): Deadline {
  const millis = toMillis("span", span);
  const start = instant();
  return { remaining: () => millis - elapsedSince(start) };
}

function parse(text: Exclude<Duration, number>): number | undefined {
  // ms takes other texts for milliseconds, or throws an error that does not name the option.
  return /^\d+(\.\d+)?(ms|s|m|h|d)$/.test(text) ? ms(text) : undefined;
}
