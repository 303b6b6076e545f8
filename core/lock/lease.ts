import { deadline, noAnswer, race } from "./abort.ts";
import { attemptSpan, GRACE } from "./attempts.ts";
import { LONGEST_SPAN } from "./checks.ts";
import { type Duration, toMillis } from "./duration.ts";
import { isLoss, type LossReason } from "./errors.ts";
import type { LockListener } from "./events.ts";
import { after, elapsedSince, type Instant, instant, type Millis } from "./time.ts";

/** The lease of a lock, or of a session. */
export interface LeaseOptions extends LeaseGrant {
  readonly names: readonly string[];

  /** Whether to renew in the background. */
  readonly autoRenew: boolean;

  readonly maxHold: Millis;

  /**
   * Sends one owner-checked renewal and gives up when `signal` aborts. Never brings the expiry forward. A store that
   * need not start the ttl anew may do without a request when at least `span` is left.
   *
   * Resolves to the grant, or to undefined when the owner no longer has the lock.
   */
  renew(ttl: Millis, signal: AbortSignal, span: Millis): Promise<LeaseGrant | undefined>;

  /** Undefined when nobody listens. */
  readonly notify?: LockListener | undefined;

  /** Makes the reason of the signal. */
  toLossError(why: LossReason): Error;
}

/** The ttl that a store has granted. */
export interface LeaseGrant {
  readonly ttl: Millis;

  /** When the request was sent: the store cannot have started counting before that. */
  readonly sentAt: Instant;
}

/** The allowance for clock drift: rates may differ by 1 %, and 2 ms cover the resolution of the clocks. */
export function driftMargin(ttl: Millis): Millis {
  return ttl / 100 + 2;
}

/** The ttl with which a lock is provably held for `span` milliseconds, if the answer comes at once. */
function padded(span: Millis): Millis {
  return span + 2 * driftMargin(span);
}

/** Renewals are due a third of the ttl after the last request: one may fail, and the next one still comes in time. */
function untilRenewal({ ttl, sentAt }: LeaseGrant): Millis {
  return ttl / 3 - elapsedSince(sentAt);
}

/** The validity of a lock: from before the request was sent until the lease ends. An ended lease stays ended. */
export class Lease {
  readonly #options: LeaseOptions;
  readonly #since = instant();
  readonly #ending = Promise.withResolvers<LossReason>();
  #ended: LossReason | undefined;
  #reason: Error | undefined;

  /** The error of the last renewal. Undefined: it succeeded. */
  #failure: unknown;
  #controller: AbortController | undefined;
  readonly #listeners: ((why: LossReason) => void)[] = [];
  #ttl: Millis;
  #sentAt: Instant;
  #renewing: Promise<LeaseGrant | undefined> | undefined;

  /** Stops the one timer: of the next renewal, or of the end where that comes first or a renewal is under way. */
  #stopTimer = () => {};

  constructor(options: LeaseOptions) {
    this.#options = options;
    this.#ttl = options.ttl;
    this.#sentAt = options.sentAt;
    // Keeps the acquirer's async context: the call that ends the lease may have another one.
    void this.#ending.promise.then((why) => this.#reportLoss(why));
    if (options.autoRenew) this.#renewIn(untilRenewal(options));
    else this.#watchExpiry();
  }

  /** Why the lease has ended; undefined before. */
  get ended(): LossReason | undefined {
    return this.#ended;
  }

  /**
   * Aborts with a LockLostError as soon as the lock can no longer be proven held.
   *
   * Made on first use: most callers never read it, and the stack of its reason costs time.
   */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#ended) this.#controller.abort(this.#lost(this.#ended));
    }
    return this.#controller.signal;
  }

  /** Calls back when the lease ends. */
  onEnd(listener: (why: LossReason) => void): void {
    this.#listeners.push(listener);
  }

  /** Returns the milliseconds for which the lock is provably held, by both clocks; 0 or less after that. */
  remaining(): Millis {
    if (this.#ended) return 0;
    const now = instant();
    return Math.min(this.#untilExpiry(now), this.#untilMaxHold(now));
  }

  /**
   * Throws a LockLostError unless the lock is provably held for `spare` milliseconds more.
   *
   * Reads only the clocks, so the answer is right even when timers are late: after a freeze or a blocked event loop,
   * other timers may fire before the timer of the signal.
   */
  assertHeld(duration: Duration = 0): void {
    const spare = toMillis("spare", duration, 0, LONGEST_SPAN);
    this.checkExpiry();
    const remaining = this.remaining();
    if (this.#ended) throw this.#lost(this.#ended);
    if (remaining < spare) throw this.#tooShort(spare);
  }

  /** Renews now unless the lock is provably held for `span` milliseconds more. Never renews beyond maxHold. */
  async ensure(duration: Duration): Promise<void> {
    const span = toMillis("span", duration, 0, LONGEST_SPAN);
    this.assertHeld();
    if (this.#untilMaxHold() < span) throw this.#tooShort(span);
    while (this.#renewing && this.remaining() < span) await this.#renewing;
    if (this.remaining() < span) await this.#renew(span);
    this.assertHeld(span);
  }

  /** Renews now, after a renewal under way. Rejects when the renewal fails. */
  async renewNow(): Promise<void> {
    this.assertHeld();
    await this.#renewing?.catch(() => {});
    await this.#renew();
    this.assertHeld();
  }

  /** Brings the next renewal in the background forward. */
  renewEarly(): void {
    if (!this.#ended) this.#renewIn(0);
  }

  /** Ends the lease if it has expired, even before its timer fires. */
  checkExpiry(): void {
    if (this.remaining() <= 0) this.#endExpired();
  }

  /** Ends the lease; only the first reason counts. */
  end(why: LossReason): void {
    if (this.#ended) return;
    this.#ended = why;
    this.#stopTimer();
    this.#controller?.abort(this.#lost(why));
    for (const listener of this.#listeners) listener(why);
    this.#ending.resolve(why);
  }

  #reportLoss(why: LossReason): void {
    const { names, notify } = this.#options;
    if (isLoss(why)) notify?.({ type: "lost", names, why });
  }

  /** Returns the same error each time. Its cause tells why the lock was not renewed. */
  #lost(why: LossReason): Error {
    if (!this.#reason) {
      this.#reason = this.#options.toLossError(why);
      if (this.#failure && why === "expired") this.#reason.cause = this.#failure;
    }
    return this.#reason;
  }

  #untilExpiry(now?: Instant): Millis {
    return this.#ttl - driftMargin(this.#ttl) - elapsedSince(this.#sentAt, now);
  }

  #untilMaxHold(now?: Instant): Millis {
    return this.#options.maxHold - elapsedSince(this.#since, now);
  }

  #tooShort(span: Millis): Error {
    return this.#options.toLossError(this.#untilMaxHold() < span ? "max-hold" : "expired");
  }

  #endExpired(): void {
    this.end(this.#untilMaxHold() <= 0 ? "max-hold" : "expired");
  }

  /** Replaces the timer by that of the expiry. */
  #watchExpiry(): void {
    this.#stopTimer();
    const check = () => (this.remaining() <= 0 ? this.#endExpired() : this.#watchExpiry());
    this.#stopTimer = after(Math.ceil(this.remaining()), check, { idle: true });
  }

  /** Replaces the timer by that of a renewal, unless the lease ends before: at its expiry, or after `maxHold`. */
  #renewIn(span: Millis): void {
    if (span >= this.remaining() || this.#untilExpiry() >= this.#untilMaxHold()) {
      this.#watchExpiry();
      return;
    }
    this.#stopTimer();
    this.#stopTimer = after(span, () => void this.#renewInBackground(), { idle: true });
  }

  async #renewInBackground(): Promise<void> {
    try {
      this.assertHeld();
      // The lease expires in time, even while the renewal hangs.
      this.#watchExpiry();
      const granted = await this.#renew();
      if (granted) this.#renewIn(Math.max(untilRenewal(granted), this.#untilRetry()));
    } catch (error) {
      if (this.#ended) return;
      this.#failure = error;
      this.#options.notify?.({ type: "renewal-failed", names: this.#options.names, error });
      this.#renewIn(this.#untilRetry());
    }
  }

  /** Retries come sooner than renewals, so that several attempts fit into the remaining time. */
  #untilRetry(): Millis {
    return Math.min(this.#options.ttl / 10, this.remaining() / 3);
  }

  /** Renews for one ttl, or for more if `span` needs more: then a third of a ttl is left for the answer. */
  #renew(span: Millis = 0): Promise<LeaseGrant | undefined> {
    const { ttl } = this.#options;
    const wanted = Math.max(ttl, padded(span) + ttl / 3);
    this.#renewing ??= this.#renewOnce(wanted, span).finally(() => {
      this.#renewing = undefined;
    });
    return this.#renewing;
  }

  /** Asks for no more than is left of maxHold: the holder could not use the rest, and others would have to wait. */
  async #renewOnce(wanted: Millis, least: Millis): Promise<LeaseGrant | undefined> {
    const ttl = Math.min(wanted, padded(this.#untilMaxHold()));
    const span = Math.min(this.#untilExpiry(), attemptSpan(this.#options.ttl));
    const limit = deadline(span, noAnswer);
    // A store that heeds its signal rejects with a better error.
    const end = deadline(span + GRACE, noAnswer);
    try {
      const renewing = this.#options.renew(ttl, limit.signal, least);
      const granted = await race(renewing, end.signal);
      if (granted === undefined) this.end("taken");
      if (this.#ended || !granted) return undefined;
      this.#extend(granted);
      this.#failure = undefined;
      this.#options.notify?.({ type: "renewed", names: this.#options.names, ttl: granted.ttl });
      return granted;
    } finally {
      limit[Symbol.dispose]();
      end[Symbol.dispose]();
    }
  }

  /** Applies a grant unless an earlier one lasts longer. */
  #extend({ ttl, sentAt }: LeaseGrant): void {
    if (ttl - driftMargin(ttl) - elapsedSince(sentAt) <= this.#untilExpiry()) return;
    this.#ttl = ttl;
    this.#sentAt = sentAt;
  }
}
