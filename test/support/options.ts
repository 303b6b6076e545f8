import { checkWhole } from "../../core/lock/checks.ts";

/** An option of yargs: a whole number from `least`. */
export function whole<More extends { default?: number; describe: string }>(
  name: string,
  least: number,
  more: More,
) {
  const coerce = (value: number) => {
    checkWhole(`--${name}`, value, least, Number.MAX_SAFE_INTEGER);
    return value;
  };
  return { type: "number", requiresArg: true, coerce, ...more } as const;
}

/** An option of yargs: names with commas between them, each a key of `known`. */
export function names<N extends string>(
  name: string,
  known: Readonly<Record<N, unknown>>,
  more: { default: string; describe: string },
) {
  const coerce = (text: string) => {
    const given = text.split(",");
    const unknown = given.filter((one) => !Object.hasOwn(known, one));
    if (unknown.length > 0) {
      const choices = Object.keys(known).join(", ");
      throw new TypeError(`--${name} does not know ${unknown.join(", ")}; it takes ${choices}`);
    }
    return given as N[];
  };
  return { type: "string", requiresArg: true, coerce, ...more } as const;
}
