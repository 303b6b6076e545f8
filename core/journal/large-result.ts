import { LARGE_RESULT, type NewRecord } from "./records.ts";

/** Returns the bytes of a result that stands beside its record, and undefined for another value. */
export function largeResult({
  kind,
  outcome,
  value = "",
}: NewRecord): Uint8Array<ArrayBuffer> | undefined {
  // The record of a signal says which one it is. A character has at most 3 bytes per unit of its length.
  const isSmall = outcome !== "ok" || kind === "signal" || value.length <= LARGE_RESULT / 3;
  const bytes = isSmall ? undefined : new TextEncoder().encode(value);
  return bytes && bytes.length > LARGE_RESULT ? bytes : undefined;
}
