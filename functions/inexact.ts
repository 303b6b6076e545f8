/**
 * Whether a number of a JSON text may have been rounded when it was read: as an id it is another one then, and its
 * payload the same as its neighbour's.
 */
export function isInexact(value: unknown): boolean {
  return typeof value === "number" && Math.abs(value) > Number.MAX_SAFE_INTEGER;
}
