import { type Grant, margin } from "../lock/life.ts";
import { after, elapsedSince, instant, type Millis } from "../lock/time.ts";

/** Until when a session certainly lives, by its grants. */
export class Validity {
  readonly #expired: () => void;
  #grant: Grant;
  #extended = Promise.withResolvers<void>();
  #stopExpiry = () => {};

  /** `expired` is called when the last grant has run down. */
  constructor(ttl: Millis, expired: () => void) {
    this.#grant = { ttl, sentAt: instant() };
    this.#expired = expired;
  }

  get grant(): Grant {
    return this.#grant;
  }

  /** Resolves with the next grant, or when there will be none. */
  get extended(): Promise<void> {
    return this.#extended.promise;
  }

  remaining(): Millis {
    const { ttl, sentAt } = this.#grant;
    return ttl - margin(ttl) - elapsedSince(sentAt);
  }

  /** A grant never brings the expiry forward. */
  extend(grant: Grant): void {
    if (grant.sentAt.mono < this.#grant.sentAt.mono) return;
    this.#grant = grant;
    this.#tell();
    this.#watch();
  }

  stop(): void {
    this.#stopExpiry();
    this.#tell();
  }

  #tell(): void {
    this.#extended.resolve();
    this.#extended = Promise.withResolvers<void>();
  }

  #watch(): void {
    this.#stopExpiry();
    const check = () => (this.remaining() > 0 ? this.#watch() : this.#expired());
    this.#stopExpiry = after(Math.ceil(this.remaining()), check, { idle: true });
  }
}
