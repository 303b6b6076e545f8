import { answerTo } from "../../lock/answers.ts";
import { isCertain, StoreUnavailableError } from "../../lock/errors.ts";
import { elapsedSince, instant, LONGEST_CALL, type Millis } from "../../lock/time.ts";
import type { Argument, Redis, Reply, Script } from "../../redis/redis.ts";
import type { Bell, Ear } from "./ear.ts";
import { LEAVE, STAND } from "./scripts.ts";

/** The longest time between two looks, before jitter: a call may be lost. */
const LOOK_EVERY: Millis = 2_000;

/** By how much a look comes later than the lock expires, at the most: waiters do not look all at once. */
const SPREAD: Millis = 50;

/** How long a line lasts that nobody enters any more: several looks. */
const LINE_TTL: Millis = 5 * LOOK_EVERY;

/** For how long to try to leave a line: who is called in vain costs the others one look. */
const LEAVING: Millis = 1_000;

/** When to look again at a lock that expires in so many milliseconds; less than 0: never. */
function lookIn(expiresIn: Millis): Millis {
  const expired = expiresIn < 0 ? LOOK_EVERY : expiresIn + SPREAD * Math.random();
  return Math.min(expired, LOOK_EVERY * (0.5 + Math.random() / 2));
}

export interface WaiterOptions {
  readonly redis: Redis;
  readonly ear: Ear;

  /** The first 36 characters name the client, and with it the channel on which it is called. */
  readonly id: string;

  /** The locks, whose turn it is, and their lines. */
  readonly keys: readonly string[];

  /** What the name of every client's channel begins with. */
  readonly channels: string;
}

/**
 * One place in line at the server: in a sorted set of the first lock that is busy, by when it came.
 *
 * A release calls the first in line, and only that one, which has left the line by then; for half a second nobody
 * else can claim the lock. If somebody has it all the same, the waiter goes back to where it stood. Nobody relies on
 * being called: all look when the lock may have expired, and every two seconds.
 */
export class Waiter {
  readonly #options: WaiterOptions;
  #since = "";

  constructor(options: WaiterOptions) {
    this.#options = options;
  }

  async turn(left: Millis, signal: AbortSignal): Promise<void> {
    const { ear, id } = this.#options;
    const startedAt = instant();
    await ear.listens(signal);
    const bell = ear.bellOf(id);
    const rest = () => left - elapsedSince(startedAt);
    let isCalled = false;
    try {
      while (!isCalled && rest() > 0) isCalled = await this.#stand(bell, rest, signal);
    } finally {
      ear.forget(id);
      if (!isCalled) await this.#leave();
    }
  }

  /** Resolves to whether it is time to claim. Then it stands in line no longer. */
  async #stand(bell: Bell, rest: () => Millis, signal: AbortSignal): Promise<boolean> {
    const args = [this.#since, LINE_TTL];
    const stand = (limit: AbortSignal) => this.#run(STAND, args, limit);
    const [expiresIn, since] = (await answerTo(stand, LONGEST_CALL, signal)) as readonly string[];
    this.#since = since ?? this.#since;
    if (expiresIn === "0") return true;
    const call = await bell.heard(Math.min(lookIn(Number(expiresIn)), rest()), signal);
    return call === "your turn";
  }

  async #leave(): Promise<void> {
    await answerTo((limit) => this.#run(LEAVE, [], limit), LEAVING).catch(() => {});
  }

  /** Whether it stands in line or not changes nothing for who holds the lock: an unknown outcome is none. */
  async #run(script: Script, args: readonly Argument[], signal: AbortSignal): Promise<Reply> {
    const { redis, keys, id, channels } = this.#options;
    try {
      return await redis.run(script, { keys, args: [channels, id, ...args], signal });
    } catch (error) {
      if (isCertain(error)) throw error;
      throw new StoreUnavailableError(redis.address, "no answer in time", error);
    }
  }
}
