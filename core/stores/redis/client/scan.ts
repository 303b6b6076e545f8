import type { Redis } from "./redis.ts";

/** How many keys the server looks at for each answer: a fraction of a millisecond, in which it serves nothing else. */
const SCAN_COUNT = 500;

/** Yields the keys that match the pattern, some of them more than once. Keys that come or go meanwhile may be missing. */
export async function* scan(redis: Redis, pattern: string): AsyncGenerator<readonly string[]> {
  let cursor = "0";
  do {
    const command = ["SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT] as const;
    const [next, keys] = (await redis.call(command, { reads: true })) as [string, string[]];
    yield keys;
    cursor = next;
  } while (cursor !== "0");
}
