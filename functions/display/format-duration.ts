import type { Millis } from "../../core/lock/time.ts";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Formats a duration in at most 9 characters: "12 ms", "1.04 s", "3 m 12 s", "2 h 5 m". */
export function formatDuration(duration: Millis): string {
  if (duration < SECOND) return `${Math.round(duration)} ms`;
  if (duration < MINUTE) return `${(duration / SECOND).toFixed(duration < 10 * SECOND ? 2 : 1)} s`;
  if (duration < HOUR) return pair(duration, MINUTE, "m", SECOND, "s");
  if (duration < DAY) return pair(duration, HOUR, "h", MINUTE, "m");
  return pair(duration, DAY, "d", HOUR, "h");
}

function pair(
  duration: Millis,
  large: Millis,
  largeUnit: string,
  small: Millis,
  smallUnit: string,
) {
  const rest = Math.floor((duration % large) / small);
  return `${Math.floor(duration / large)} ${largeUnit} ${rest} ${smallUnit}`;
}
