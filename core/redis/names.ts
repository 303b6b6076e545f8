import { checkText } from "../lock/checks.ts";

/** What stands before all keys, unless something else is asked for. */
export const PREFIX = "lockstep";

/**
 * Throws unless the prefix can be the hash tag of all keys.
 *
 * On a cluster all keys with one prefix are in one slot, so that one script can work on any of them: a prefix is
 * served by one shard. Who needs several shards uses several prefixes.
 */
export function checkPrefix(prefix: string): void {
  checkText("prefix", prefix, 200);
  if (/[{}]/.test(prefix)) throw new RangeError("the prefix of keys must not contain { or }");
}

/** A key of which there is one per prefix. */
export function ownKey(prefix: string, kind: string): string {
  return `{${prefix}}${kind}`;
}

/** One of the keys of a name: `{PREFIX}KIND:NAME`. The name is left as it is. */
export function keyOf(prefix: string, kind: string, name: string): string {
  return `${ownKey(prefix, kind)}:${name}`;
}

/** The name that a key of this kind belongs to. */
export function nameOf(prefix: string, kind: string, key: string): string {
  return key.slice(keyOf(prefix, kind, "").length);
}

/** The pattern that fits all keys of a kind whose names begin with `start`. */
export function patternOf(prefix: string, kind: string, start: string): string {
  return `${keyOf(prefix, kind, start).replace(/[\\*?[\]]/g, "\\$&")}*`;
}
