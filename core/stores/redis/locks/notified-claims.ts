import type { ReleaseSubscription, WaitForTurn } from "../../../lock/claims.ts";
import type { WakeUpChannel } from "../../../lock/wake-ups.ts";
import { ownKey } from "../client/names.ts";
import type { Redis } from "../client/redis.ts";
import { type ClaimsOptions, RedisClaims, TRAITS } from "./claims.ts";
import { RELEASES } from "./scripts.ts";
import { Waiter } from "./waiter.ts";
import { WakeupSubscription } from "./wakeups.ts";

/** Claims whose waiters are woken by publications, for a client that can subscribe. */
export class NotifiedClaims extends RedisClaims {
  override readonly traits = { ...TRAITS, watches: true };
  readonly wakeUps: WakeUpChannel;
  readonly #redis: Required<Redis>;
  readonly #subscription: WakeupSubscription;

  constructor(redis: Required<Redis>, options: ClaimsOptions) {
    super(redis, options);
    this.#redis = redis;
    this.#subscription = new WakeupSubscription(redis, this.keys.channel);
    const channel = ownKey(options.prefix, "due");
    this.wakeUps = {
      publish: (text, signal) => redis.call(["PUBLISH", channel, text], { signal }),
      subscribe: (onText) =>
        redis.subscribe(channel, { ready: () => onText(undefined), message: onText }),
    };
  }

  waitForTurn(names: readonly string[], owner: string): WaitForTurn {
    let waiter: Waiter | undefined;
    return (left, signal) => {
      // Made for the first wait: most locks are free.
      waiter ??= new Waiter({
        redis: this.#redis,
        subscription: this.#subscription,
        id: this.keys.waiter(owner),
        keys: this.keys.of(names, "lock", "turn", "wait"),
        channels: this.keys.channels,
      });
      return waiter.waitForTurn(left, signal);
    };
  }

  onRelease(name: string, listener: () => void): ReleaseSubscription {
    const [lock = ""] = this.keys.of([name], "lock");
    const channel = `${this.keys.channels}${RELEASES}${lock}`;
    const stop = this.#redis.subscribe(channel, { ready: listener, message: listener });
    return { isActive: true, stop };
  }

  override async close(): Promise<void> {
    this.#subscription.close();
    await super.close();
  }
}
