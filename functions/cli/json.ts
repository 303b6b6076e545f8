/**
 * Formats a value as one line of plain JSON: dates and bigints become strings, maps and sets become lists. Undefined
 * and infinite values are left out.
 */
export function toJson(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) => {
    if (typeof part === "bigint") return part.toString();
    if (part instanceof Map || part instanceof Set) return [...part];
    return part === Number.POSITIVE_INFINITY ? undefined : part;
  });
}

/** Parses JSON. Throws a TypeError that names the input. */
export function parseJson(input: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new TypeError(`${input} is not JSON: ${(error as Error).message}`);
  }
}
