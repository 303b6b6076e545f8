import { wrongType } from "./checks.ts";
import { quote } from "./errors.ts";

/**
 * The names of all members of an options type: the compiler notices a missing and a wrong one. False: only this package sets
 * it, and no message shows it.
 */
export type OptionNames<Options> = Readonly<Record<keyof Options, boolean>>;

/**
 * Throws a TypeError unless the options are missing, or an object whose own members `call` knows: a misspelt option would
 * be ignored. A store may be spread into options, as in `{ ...shop, workflows }`: of its other members, only those that
 * are nearly an option are refused.
 */
export function checkOptionNames(
  call: string,
  options: unknown,
  names: Readonly<Record<string, boolean>>,
): void {
  if (options === undefined) return;
  if (typeof options !== "object" || options === null || isOther(options)) {
    throw wrongType(`the options of ${call}`, "an object", options);
  }
  for (const name in options) {
    if (Object.hasOwn(names, name) || !Object.hasOwn(options, name)) continue;
    const known = Object.keys(names).filter((one) => names[one]);
    const meant = known.find((one) => isNear(name.toLowerCase(), one.toLowerCase()));
    if (meant === undefined && isStore(options)) continue;
    const advice = meant === undefined ? `it has ${known.join(", ")}` : `did you mean "${meant}"?`;
    throw new TypeError(`unknown option ${quote(name)} of ${call}: ${advice}`);
  }
}

/** Whether the object was passed in the place of options. */
function isOther(value: object): boolean {
  return Array.isArray(value) || value instanceof AbortSignal || value instanceof Date;
}

function isStore(options: object): boolean {
  return "elections" in options;
}

/** Whether all letters that differ are together, and few. */
function isNear(a: string, b: string): boolean {
  const shorter = Math.min(a.length, b.length);
  let start = 0;
  while (start < shorter && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < shorter - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  return Math.max(a.length, b.length) - start - end <= Math.min(3, b.length / 2);
}
