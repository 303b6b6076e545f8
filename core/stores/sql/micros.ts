import { asNumber } from "../../database/sql.ts";
import type { Millis } from "../../lock/time.ts";

/** Converts to whole microseconds, the unit of all time columns. */
export function micros(span: Millis): number {
  return Math.round(span * 1_000);
}

export function toMillis(micros: unknown): Millis {
  return asNumber(micros) / 1_000;
}
