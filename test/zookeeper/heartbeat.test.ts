import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { StoreUnavailableError } from "../../core/lock/errors.ts";
import { elapsedSince, instant } from "../../core/lock/time.ts";
import { Heartbeat } from "../../core/stores/zookeeper/client/liveness.ts";
import { xidAfter } from "../../core/stores/zookeeper/client/requests.ts";

const TTL = 4_000;

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

/** Starts heartbeats that are answered after `delay` ms; Infinity: never. */
function pulse(delay: () => number) {
  const seen = { proven: [] as number[], missed: 0 };
  const start = instant();
  const beat = new Heartbeat(start, {
    ttl: TTL,
    beat: () => new Promise<void>((resolve) => setTimeout(resolve, Math.min(delay(), 2 ** 30))),
    proven: (sentAt) => seen.proven.push(sentAt.mono - start.mono),
    missed: () => {
      seen.missed += 1;
    },
  });
  return { seen, beat, now: () => elapsedSince(start) };
}

test("a heartbeat proves only requests that were sent a quarter of the ttl before it", async () => {
  const { seen, beat, now } = pulse(() => 10);
  for (let i = 0; i < 10; i += 1) {
    const before = seen.proven.length;
    await vi.advanceTimersByTimeAsync(TTL / 4 + 12);
    expect(seen.proven).toHaveLength(before + 1);
    const latest = seen.proven.at(-1) ?? Number.NaN;
    // The beat was sent some milliseconds before.
    expect(now() - latest).toBeGreaterThanOrEqual(TTL / 4);
    expect(now() - latest).toBeLessThan(TTL / 2);
  }
  expect(seen.missed).toBe(0);
  beat.stop();
  await vi.advanceTimersByTimeAsync(TTL);
  expect(seen.proven).toHaveLength(10);
});

test("a heartbeat that an overloaded server refuses is followed by the next one", async () => {
  let beats = 0;
  let proven = 0;
  const beat = new Heartbeat(instant(), {
    ttl: TTL,
    beat: async () => {
      beats += 1;
      if (beats === 2) throw new StoreUnavailableError("zookeeper", "the server is overloaded");
    },
    proven: () => {
      proven += 1;
    },
    missed: () => {},
  });
  await vi.advanceTimersByTimeAsync(4 * (TTL / 4 + 2));
  beat.stop();
  expect([beats, proven]).toEqual([4, 3]);
});

test("the number after the highest one of a request is 1, and can be sent", () => {
  expect([0, 7, 2 ** 31 - 2, 2 ** 31 - 1].map(xidAfter)).toEqual([1, 8, 2 ** 31 - 1, 1]);
});

test("an unanswered heartbeat is reported early enough to find another server", async () => {
  const { seen, now } = pulse(() => Number.POSITIVE_INFINITY);
  while (seen.missed === 0) await vi.advanceTimersByTimeAsync(10);
  expect(now()).toBeLessThan(TTL / 2);
  expect(seen.proven).toEqual([]);
});
