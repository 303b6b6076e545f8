import type { Millis } from "../../core/lock/time.ts";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** A span for humans, in at most 9 characters: "12 ms", "1.04 s", "3 m 12 s", "2 h 5 m". */
export function spanText(span: Millis): string {
  if (span < SECOND) return `${Math.round(span)} ms`;
  if (span < MINUTE) return `${(span / SECOND).toFixed(span < 10 * SECOND ? 2 : 1)} s`;
  if (span < HOUR) return pair(span, MINUTE, "m", SECOND, "s");
  if (span < DAY) return pair(span, HOUR, "h", MINUTE, "m");
  return pair(span, DAY, "d", HOUR, "h");
}

function pair(span: Millis, large: Millis, largeUnit: string, small: Millis, smallUnit: string) {
  return `${Math.floor(span / large)} ${largeUnit} ${Math.floor((span % large) / small)} ${smallUnit}`;
}
