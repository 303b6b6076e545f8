/**
 * Tells whether `JSON.parse` may have rounded a number. A rounded number used as an id names another object, and two
 * different payloads become equal.
 */
export function isInexact(value: unknown): boolean {
  return typeof value === "number" && Math.abs(value) > Number.MAX_SAFE_INTEGER;
}
