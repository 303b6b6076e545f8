import { ownKey } from "./names.ts";
import { type Redis, script } from "./redis.ts";

/** How many keys the server looks at for each answer: a fraction of a millisecond, in which it serves nothing else. */
const SCAN_COUNT = 500;

/** KEYS: two that do not exist. ARGV: the cursor, the pattern, how many keys to look at. */
const SCAN = script("return redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])", {
  reads: true,
});

/**
 * Yields the keys of a prefix that match the pattern, some of them more than once. Keys that come or go meanwhile may be
 * missing.
 *
 * SCAN names no key, so a node of a cluster would answer for a slot that it no longer has. Two keys that do not exist make a
 * node refuse while it has a part of the slot. A cursor means nothing to another server: a new connection starts again.
 */
export async function* scan(
  redis: Redis,
  prefix: string,
  pattern: string,
): AsyncGenerator<readonly string[]> {
  const keys = ["none-1", "none-2"].map((kind) => ownKey(prefix, kind));
  let cursor = "0";
  let { connection } = redis;
  let isSame: boolean;
  do {
    const reply = await redis.run(SCAN, { keys, args: [cursor, pattern, SCAN_COUNT] });
    const [next, found] = reply as readonly [string, readonly string[]];
    yield found;
    isSame = redis.connection === connection;
    ({ connection } = redis);
    cursor = isSame ? next : "0";
  } while (!isSame || cursor !== "0");
}
