import { deadline, noAnswer } from "./abort.ts";
import { checkSpan } from "./checks.ts";
import { isLoss, type LossReason } from "./errors.ts";
import type { LockListener } from "./events.ts";
import { after, elapsedSince, type Instant, instant, type Millis } from "./time.ts";

/** What the life of a lock, or of a session, hangs on. */
export interface Terms extends Grant {
  readonly names: readonly string[];

  /** Whether to renew in the background. */
  readonly auto: boolean;

  readonly maxHold: Millis;

  /**
   * One compare-and-set on the owner, given up when `signal` aborts. It never brings the expiry forward.
   * `span` has to be left of it afterwards, where a store can do with less than the ttl starting anew.
   *
   * Resolves to what was granted, or to undefined when the store says that the lock is not ours.
   */
  renew(ttl: Millis, signal: AbortSignal, span: Millis): Promise<Grant | undefined>;

  readonly notify: LockListener;

  /** What the signal aborts with. */
  lost(why: LossReason): Error;
}

/** A span of time that a store has granted. */
export interface Grant {
  readonly ttl: Millis;

  /** When the request was sent: the store cannot have started counting before that. */
  readonly sentAt: Instant;
}

/** Clock rates are taken to differ by less than 1 %; 2 ms cover the clocks' resolution. */
export function margin(ttl: Millis): Millis {
  return ttl / 100 + 2;
}

/** What to be granted for `span` milliseconds to be provably held, if the answer came at once. */
function padded(span: Millis): Millis {
  return span + 2 * margin(span);
}

/** A lock counts as held from the moment it was asked for until its life ends; an ended life stays ended. */
export class Life {
  readonly #terms: Terms;
  readonly #since = instant();
  readonly #ending = Promise.withResolvers<LossReason>();
  #ended: LossReason | undefined;
  #reason: Error | undefined;
  #controller: AbortController | undefined;
  #listeners: readonly ((why: LossReason) => void)[] = [];
  #ttl: Millis;
  #sentAt: Instant;
  #renewing: Promise<void> | undefined;
  #stopExpiry = () => {};
  #stopRenewal = () => {};

  constructor(terms: Terms) {
    this.#terms = terms;
    this.#ttl = terms.ttl;
    this.#sentAt = terms.sentAt;
    // In the asynchronous context of whoever acquires: what ends the life may come from that of somebody else.
    void this.#ending.promise.then((why) => this.#tell(why));
    this.#watchExpiry();
    // A third of the ttl: one renewal may fail and the next still comes in time.
    if (terms.auto) this.#renewIn(terms.ttl / 3);
  }

  /** Why it has ended; undefined while it lasts. */
  get ended(): LossReason | undefined {
    return this.#ended;
  }

  /**
   * Aborts with a LockLostError as soon as the lock can no longer be proven held.
   *
   * It is made when it is asked for: most bodies never do, and aborting one takes its time.
   */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#ended) this.#controller.abort(this.#lost(this.#ended));
    }
    return this.#controller.signal;
  }

  /** Calls back when it ends. */
  onEnd(listener: (why: LossReason) => void): void {
    this.#listeners = [...this.#listeners, listener];
  }

  /** Milliseconds for which the lock is still provably held, by both clocks; 0 or less once it is not. */
  remaining(): Millis {
    if (this.#ended) return 0;
    return Math.min(this.#untilExpiry(), this.#untilMaxHold());
  }

  /**
   * Throws a LockLostError unless the lock is provably held for `spare` milliseconds more.
   *
   * It reads the clocks and nothing else, so it is right even when timers are late: after a freeze or a
   * blocked event loop, the work's own timers may run before the signal's.
   */
  assertHeld(spare: Millis = 0): void {
    checkSpan("spare", spare, 0);
    this.notice();
    const remaining = this.remaining();
    if (this.#ended) throw this.#lost(this.#ended);
    if (remaining < spare) throw this.#tooShort(spare);
  }

  /** Renews now unless the lock is provably held for `span` milliseconds more; not at all beyond maxHold. */
  async ensure(span: Millis): Promise<void> {
    checkSpan("span", span, 0);
    this.assertHeld();
    if (this.#untilMaxHold() < span) throw this.#tooShort(span);
    while (this.#renewing && this.remaining() < span) await this.#renewing;
    if (this.remaining() < span) await this.#renew(span);
    this.assertHeld(span);
  }

  /** Ends the life if its time is over, however late the timers are. */
  notice(): void {
    if (this.remaining() <= 0) this.#endInTime();
  }

  /** Ends the life; only the first reason counts. */
  end(why: LossReason): void {
    if (this.#ended) return;
    this.#ended = why;
    this.#stopExpiry();
    this.#stopRenewal();
    this.#controller?.abort(this.#lost(why));
    for (const listener of this.#listeners) listener(why);
    this.#ending.resolve(why);
  }

  #tell(why: LossReason): void {
    const { names, notify } = this.#terms;
    if (isLoss(why)) notify({ type: "lost", names, why });
  }

  /** The same one each time. */
  #lost(why: LossReason): Error {
    this.#reason ??= this.#terms.lost(why);
    return this.#reason;
  }

  #untilExpiry(): Millis {
    return this.#ttl - margin(this.#ttl) - elapsedSince(this.#sentAt);
  }

  #untilMaxHold(): Millis {
    return this.#terms.maxHold - elapsedSince(this.#since);
  }

  #tooShort(span: Millis): Error {
    return this.#terms.lost(this.#untilMaxHold() < span ? "max-hold" : "expired");
  }

  #endInTime(): void {
    this.end(this.#untilMaxHold() <= 0 ? "max-hold" : "expired");
  }

  /** A timer of its own: it fires even while a renewal hangs. */
  #watchExpiry(): void {
    this.#stopExpiry();
    const check = () => (this.remaining() <= 0 ? this.#endInTime() : this.#watchExpiry());
    this.#stopExpiry = after(Math.ceil(this.remaining()), check, { idle: true });
  }

  #renewIn(span: Millis): void {
    this.#stopRenewal();
    this.#stopRenewal = after(span, () => void this.#renewInBackground(), { idle: true });
  }

  async #renewInBackground(): Promise<void> {
    try {
      this.assertHeld();
      await this.#renew();
      if (!this.#ended) this.#renewIn(this.#ttl / 3);
    } catch (error) {
      if (this.#ended) return;
      this.#terms.notify({ type: "renewal-failed", names: this.#terms.names, error });
      // Sooner after an error, so that several attempts fit into what is left.
      this.#renewIn(Math.min(this.#terms.ttl / 10, this.remaining() / 3));
    }
  }

  /** For one ttl, or for more if `span` needs it: then there is a third of a ttl for the answer to come. */
  #renew(span: Millis = 0): Promise<void> {
    const { ttl } = this.#terms;
    const wanted = Math.max(ttl, padded(span) + ttl / 3);
    this.#renewing ??= this.#renewOnce(wanted, span).finally(() => {
      this.#renewing = undefined;
    });
    return this.#renewing;
  }

  /** Nothing is asked for that would outlast maxHold: nobody could use it, and others would have to wait. */
  async #renewOnce(wanted: Millis, span: Millis): Promise<void> {
    const ttl = Math.min(wanted, padded(this.#untilMaxHold()));
    const limit = deadline(this.#untilExpiry(), noAnswer);
    try {
      const granted = await this.#terms.renew(ttl, limit.signal, span);
      if (this.#ended) return;
      if (granted === undefined) return this.end("taken");
      this.#extend(granted);
      this.#terms.notify({ type: "renewed", names: this.#terms.names, ttl: granted.ttl });
    } finally {
      limit[Symbol.dispose]();
    }
  }

  /** A renewal never shortens what was granted before. */
  #extend({ ttl, sentAt }: Grant): void {
    if (ttl - margin(ttl) - elapsedSince(sentAt) <= this.#untilExpiry()) return;
    this.#ttl = ttl;
    this.#sentAt = sentAt;
    this.#watchExpiry();
  }
}
