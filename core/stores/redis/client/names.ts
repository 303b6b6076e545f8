import { checkText } from "../../../lock/checks.ts";

/** The default prefix of all keys. */
export const PREFIX = "lockstep";

/**
 * Throws unless the prefix can be the hash tag of all keys.
 *
 * In a cluster all keys with one prefix are in one slot, so that one script can use any of them. One master serves the
 * prefix; several prefixes may be on several masters.
 */
export function checkPrefix(prefix: string): void {
  checkText("prefix", prefix, 200);
  if (/[{}]/.test(prefix)) throw new RangeError("the prefix of keys must not contain { or }");
}

/** Returns a key that exists once per prefix. */
export function ownKey(prefix: string, kind: string): string {
  return `{${prefix}}${kind}`;
}

/** Returns one of the keys of a name: `{PREFIX}KIND:NAME`, without encoding of the name. */
export function keyOf(prefix: string, kind: string, name: string): string {
  return `${ownKey(prefix, kind)}:${name}`;
}

/** Returns the name of a key of this kind. */
export function nameOf(prefix: string, kind: string, key: string): string {
  return key.slice(keyOf(prefix, kind, "").length);
}

/** Returns the pattern of all keys of a kind whose names start with `start`. */
export function patternOf(prefix: string, kind: string, start: string): string {
  return `${keyOf(prefix, kind, start).replace(/[\\*?[\]]/g, "\\$&")}*`;
}
