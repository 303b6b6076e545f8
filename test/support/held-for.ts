import type { Lock } from "../../core/lock/lock.ts";

/** Returns for how many milliseconds the lock is provably held without a renewal, `most` at the most. Undefined: it is lost. */
export function heldFor(lock: Pick<Lock, "assertHeld">, most: number): number | undefined {
  let found: number | undefined;
  for (let [least, limit] = [0, most]; least <= limit; ) {
    const span = found === undefined ? 0 : Math.ceil((least + limit) / 2);
    try {
      lock.assertHeld(span);
      found = span;
      least = span + 1;
    } catch {
      limit = span - 1;
    }
  }
  return found;
}
