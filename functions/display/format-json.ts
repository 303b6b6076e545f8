import { isInexact } from "../json/inexact.ts";
import { escapeControls } from "./escape-controls.ts";

/**
 * Formats a value as one line of plain JSON: dates and bigints become strings, maps and sets become lists, an object
 * within itself becomes null. Undefined and infinite values are left out. JSON itself does not escape C1 controls.
 */
export function formatJson(value: unknown): string {
  /** The objects around a part, the outermost one first. */
  const around: unknown[] = [];
  const json: string | undefined = JSON.stringify(
    value,
    function (this: unknown, _, part: unknown) {
      while (around.length > 0 && around.at(-1) !== this) around.pop();
      if (typeof part === "bigint") return part.toString();
      if (around.includes(part)) return null;
      const shown = part instanceof Map || part instanceof Set ? [...part] : part;
      if (typeof shown === "object") around.push(shown);
      return shown === Number.POSITIVE_INFINITY ? undefined : shown;
    },
  );
  return json && escapeControls(json);
}

/** Parses JSON. Throws a TypeError that names the input, also for a number that JavaScript would round. */
export function parseJson(input: string, text: string): unknown {
  try {
    return JSON.parse(text, (_, value) => checkExact(input, value));
  } catch (error) {
    if (error instanceof TypeError) throw error;
    throw new TypeError(`${input} is not JSON: ${(error as Error).message}`);
  }
}

function checkExact(input: string, value: unknown): unknown {
  if (!isInexact(value)) return value;
  throw new TypeError(`${input} has a number beyond 2^53 - 1; write it as a text`);
}
