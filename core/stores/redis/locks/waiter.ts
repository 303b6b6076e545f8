import { deadline, noAnswer } from "../../../lock/abort.ts";
import { withinAttempt } from "../../../lock/attempts.ts";
import { isCertain, StoreUnavailableError } from "../../../lock/errors.ts";
import { CHECK_EVERY, checkIn } from "../../../lock/polling.ts";
import { elapsedSince, instant, LONGEST_CALL, type Millis } from "../../../lock/time.ts";
import type { Argument, Redis, Reply, Script } from "../client/redis.ts";
import { ENQUEUE, LEAVE } from "./scripts.ts";
import type { Wakeup, WakeupSubscription } from "./wakeups.ts";

/** How long the server keeps a queue without entries or checks: several checks. */
const QUEUE_TTL: Millis = 5 * CHECK_EVERY;

/** The longest attempt to leave a queue: an entry left behind costs the others one check. */
const LEAVING: Millis = 1_000;

export interface WaiterOptions {
  readonly redis: Redis;
  readonly subscription: WakeupSubscription;

  /** The first 36 characters name the client, and with it the channel of its wake-ups. */
  readonly id: string;

  /** The keys of the locks, of their turns, and of their queues. */
  readonly keys: readonly string[];

  /** The common prefix of all clients' channels. */
  readonly channels: string;
}

/**
 * One entry in a queue at the server: in the sorted set of the first busy lock, by the time of arrival.
 *
 * A release removes the first waiter of the queue and wakes only that one; for half a second no other client can claim
 * the lock. If the lock is taken all the same, the waiter goes back to its place. No waiter depends on being woken: each
 * reads the lock when the lock may have expired, and every two seconds.
 */
export class Waiter {
  readonly #options: WaiterOptions;
  #since = "";

  constructor(options: WaiterOptions) {
    this.#options = options;
  }

  async waitForTurn(left: Millis, signal: AbortSignal): Promise<void> {
    const { subscription, id } = this.#options;
    const startedAt = instant();
    using limit = deadline(left, noAnswer, signal);
    try {
      await subscription.ready(limit.signal);
    } catch (error) {
      if (error === limit.signal.reason && !signal.aborted) return;
      throw error;
    }
    const wakeup = subscription.add(id);
    const rest = () => left - elapsedSince(startedAt);
    let mayClaim = false;
    try {
      while (!mayClaim && rest() > 0) mayClaim = await this.#waitOnce(wakeup, rest, signal);
    } finally {
      subscription.remove(id);
      if (!mayClaim) await this.#leave();
    }
  }

  /** Resolves to whether it is time to claim. Then no queue has an entry of this waiter. */
  async #waitOnce(wakeup: Wakeup, rest: () => Millis, signal: AbortSignal): Promise<boolean> {
    const args = [this.#since, QUEUE_TTL];
    const enqueue = (limit: AbortSignal) => this.#run(ENQUEUE, args, limit);
    const reply = await withinAttempt(enqueue, LONGEST_CALL, signal);
    const [expiresIn, since] = reply as readonly string[];
    this.#since = since ?? this.#since;
    if (expiresIn === "0") return true;
    const left = Number(expiresIn);
    // Less than 0: it never expires.
    const span = checkIn(left < 0 ? CHECK_EVERY : left);
    await wakeup.notifier.wait({ span: Math.min(span, rest()), signal });
    return wakeup.isTurn;
  }

  async #leave(): Promise<void> {
    await withinAttempt((limit) => this.#run(LEAVE, [], limit), LEAVING).catch(() => {});
  }

  /** Membership in a queue does not affect ownership: a lost answer is reported as an unavailable store. */
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
