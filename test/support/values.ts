import fc from "fast-check";

/** Keys that meet the syntax of paths, and those of prototypes. */
const key = fc.oneof(
  fc.string({ unit: "grapheme" }),
  fc.constantFrom(
    "__proto__",
    "constructor",
    "prototype",
    "json",
    "types",
    "a.b",
    "a\\.b",
    "0",
    "",
  ),
);

const data = {
  key,
  withBigInt: true,
  withDate: true,
  withMap: true,
  withSet: true,
  withTypedArray: true,
} as const;

/** Values of all kinds that can be stored. */
export const storableValue = fc.anything(data).filter((value) => !hasInvalidDate(value));

/** Values of which some cannot be stored. */
export const anyValue = fc.anything({ ...data, withSparseArray: true, withBoxedValues: true });

function hasInvalidDate(value: unknown): boolean {
  if (value instanceof Date) return Number.isNaN(value.getTime());
  if (value instanceof Map) return [...value].flat().some(hasInvalidDate);
  if (value instanceof Set) return [...value].some(hasInvalidDate);
  return typeof value === "object" && value !== null && Object.values(value).some(hasInvalidDate);
}
