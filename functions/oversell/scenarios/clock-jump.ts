import { openRedis, redlockStore } from "../../../core/stores/redlock/index.ts";
import { stepClock, steppableClock } from "../../../infra/clock/clock.ts";
import type { Scenario, Variant } from "./scenario.ts";

interface ClockJump extends Variant {
  /** On how many of the five masters the clock is stepped. */
  readonly stepped: number;
}

/** By how much the clocks are stepped forward: longer than the ttl. */
const STEP = 60_000;

/** Redlock rests on the clocks of a majority, and they jump. */
export const CLOCK_JUMP: Scenario<ClockJump> = {
  name: "clock-jump",
  story:
    "Somebody holds a Redlock of five Redis masters. The wall clocks of some of them are stepped forward by a minute, " +
    "which is longer than its ttl, and somebody else asks for the same lock.",
  server: "redlock",
  env: steppableClock,
  variants: [
    {
      name: "lock alone, two of five clocks",
      guard: "by-hand",
      stepped: 2,
      why: "Three masters still have the lock, which is a quorum: there is no second holder.",
    },
    {
      name: "lock alone, three of five clocks",
      guard: "by-hand",
      stepped: 3,
      why: "The lock has expired on three masters, which is a quorum for a second holder: both sold all they saw.",
    },
    {
      name: "claimed fence, conditional decrement",
      guard: "fenced",
      stepped: 3,
      why: "There are two holders all the same, but the second one's fence is higher, and the first one was late.",
    },
  ],

  async play({ stepped }, stand, nodes) {
    const open = () => nodes.map(({ place }) => openRedis({ host: "127.0.0.1", port: place.port }));
    const [ours, theirs] = [open(), open()];
    try {
      await stand.enter(redlockStore(ours));
      // Over the same connections: by then all five have the lock, though three were enough.
      await Promise.all(ours.map((redis) => redis.call(["PING"])));
      await Promise.all(nodes.slice(0, stepped).map((node) => stepClock(node, STEP)));
      await stand.enter(redlockStore(theirs));
    } finally {
      await Promise.all([...ours, ...theirs].map((redis) => redis.close()));
    }
  },
};
