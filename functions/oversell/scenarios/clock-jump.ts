import { backoff, retry } from "../../../core/lock/retry.ts";
import { keyOf, PREFIX } from "../../../core/stores/redis/client/names.ts";
import { redisClient } from "../../../core/stores/redis/client/open.ts";
import type { Redis } from "../../../core/stores/redis/client/redis.ts";
import { redlockLocks } from "../../../core/stores/redlock/locks.ts";
import { stepClock, steppableClock } from "../../../infra/clock/clock.ts";
import type { Scenario, Variant } from "./scenario.ts";

interface ClockJump extends Variant {
  /** The number of masters, of five, whose clock is stepped. */
  readonly stepped: number;
}

/** The clock step in milliseconds: longer than the ttl. */
const STEP = 60_000;

/** The clocks of Redis masters jump, on which Redlock depends. */
export const CLOCK_JUMP: Scenario<ClockJump> = {
  name: "clock-jump",
  story:
    "A client holds a Redlock on five Redis masters. The wall clocks of some masters are stepped forward by a minute, " +
    "longer than the lock's ttl. A second client requests the same lock.",
  server: "redlock",
  env: steppableClock,
  variants: [
    {
      name: "lock alone, two of five clocks",
      guard: "by-hand",
      stepped: 2,
      why: "Three masters, a quorum, still have the lock: the second client does not get it.",
    },
    {
      name: "lock alone, three of five clocks",
      guard: "by-hand",
      stepped: 3,
      why: "The lock expired on three masters, a quorum for the second client: both holders sold the whole stock.",
    },
    {
      name: "claimed fence, conditional decrement",
      guard: "fenced",
      stepped: 3,
      why: "Two clients hold the lock, but the second has a higher fence, so the first one's sales were refused.",
    },
  ],

  async play({ stepped }, shop, nodes) {
    const open = () =>
      nodes.map(({ config }) => redisClient({ host: "127.0.0.1", port: config.port }));
    const [first, second] = [open(), open()];
    try {
      await Promise.all([...first, ...second].map(connect));
      await shop.acquire(redlockLocks(first));
      // The lock counts once a quorum has it. A claim that came after the step would hold the lock at a stepped master.
      await Promise.all(first.map((redis) => hasLock(redis, shop.lock)));
      await Promise.all(nodes.slice(0, stepped).map((node) => stepClock(node, STEP)));
      await shop.acquire(redlockLocks(second));
    } finally {
      await Promise.all([...first, ...second].map((redis) => redis.close()));
    }
  },
};

/** The most attempts to connect. A busy machine takes longer for five connections than the wait for a lock. */
const ATTEMPTS = 10;

function connect(redis: Redis): Promise<unknown> {
  const pauseAfter = (_: unknown, count: number) => (count < ATTEMPTS ? backoff(count) : undefined);
  return retry(() => redis.call(["PING"]), pauseAfter);
}

/** Resolves when the master has the lock. */
function hasLock(redis: Redis, name: string): Promise<void> {
  const check = async () => {
    if (Number(await redis.call(["EXISTS", keyOf(PREFIX, "lock", name)])) === 0) {
      throw new Error(`the master ${redis.address} did not get the lock`);
    }
  };
  const pauseAfter = (_: unknown, count: number) =>
    count < 10 * ATTEMPTS ? backoff(count) : undefined;
  return retry(check, pauseAfter);
}
