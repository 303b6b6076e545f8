import { driftMargin, type LeaseGrant } from "../../../lock/lease.ts";
import { after, elapsedSince, type Instant, instant, type Millis } from "../../../lock/time.ts";

export interface HeartbeatOptions {
  readonly ttl: Millis;

  /** Sends a request that the servers' leader has to answer. */
  beat(): Promise<unknown>;

  /** Called with a time from which the servers count the ttl, or from a later one. */
  proven(sentAt: Instant): void;

  /** Called when a beat was not answered in time. */
  missed(): void;
}

/** Limits for long ttls: a dead connection is detected within 10 s. */
const LONGEST_PAUSE: Millis = 5_000;
const LONGEST_ANSWER: Millis = 4_000;

/**
 * Sends the heartbeats of a session over one connection.
 *
 * A follower reports live sessions to the leader only every half tick. Its own answers prove nothing: a follower that is cut
 * off goes on answering while the leader lets the session expire. So a beat is a `sync`, which the leader answers, and it
 * proves only requests that were reported before it: those sent a quarter of the ttl earlier, since the minimal timeout is
 * two ticks.
 */
export class Heartbeat {
  readonly #options: HeartbeatOptions;

  /** When the answered requests were sent, the oldest first. */
  #answered: readonly Instant[];
  #cancel = () => {};
  #isOver = false;

  /** Starts on a connection whose opening request was sent at `sentAt` and answered by the leader. */
  constructor(sentAt: Instant, options: HeartbeatOptions) {
    this.#options = options;
    this.#answered = [sentAt];
    this.#beatSoon();
  }

  stop(): void {
    this.#isOver = true;
    this.#cancel();
  }

  #beatSoon(): void {
    // Timers fire up to a millisecond early.
    const span = Math.min(this.#options.ttl / 4 + 2, LONGEST_PAUSE);
    this.#cancel = after(span, () => void this.#beat(), { idle: true });
  }

  async #beat(): Promise<void> {
    const { ttl, beat, proven, missed } = this.#options;
    const sentAt = instant();
    // Leaves enough time to find another server.
    this.#cancel = after(Math.min(ttl / 5, LONGEST_ANSWER), missed, { idle: true });
    const isAnswered = await beat().then(
      () => true,
      () => false,
    );
    this.#cancel();
    if (this.#isOver) return;
    // Passing: a connection that has ended stops its heartbeat.
    if (!isAnswered) return this.#beatSoon();
    const reported = this.#answered.filter(({ mono }) => sentAt.mono - mono >= ttl / 4);
    const latest = reported.at(-1);
    if (latest) proven(latest);
    this.#answered = [...this.#answered.slice(Math.max(0, reported.length - 1)), sentAt];
    this.#beatSoon();
  }
}

export interface ServerWatchdogOptions {
  /** The longest silence of a server while a request is pending. */
  readonly span: Millis;

  /** Returns the number of message parts received so far. */
  received(): number;
  isPending(): boolean;

  /** Called after the longest silence. */
  timedOut(): void;
}

/** The checks per span. A frozen process reads the answers that came meanwhile between two checks. */
const CHECKS = 4;

/** Detects a server that is silent while a request is pending: the server hangs, or the connection is dead. */
export class ServerWatchdog {
  readonly #options: ServerWatchdogOptions;
  #received = 0;
  #silentChecks = 0;
  #cancel: (() => void) | undefined;
  #isOver = false;

  constructor(options: ServerWatchdogOptions) {
    this.#options = options;
  }

  /** Starts to watch, after a request was sent. */
  start(): void {
    if (this.#cancel || this.#isOver) return;
    this.#silentChecks = 0;
    this.#received = this.#options.received();
    this.#checkSoon();
  }

  stop(): void {
    this.#isOver = true;
    this.#cancel?.();
  }

  #checkSoon(): void {
    this.#cancel = after(this.#options.span / CHECKS, () => this.#check(), { idle: true });
  }

  #check(): void {
    this.#cancel = undefined;
    if (this.#isOver || !this.#options.isPending()) return;
    const received = this.#options.received();
    this.#silentChecks = received === this.#received ? this.#silentChecks + 1 : 0;
    this.#received = received;
    if (this.#silentChecks === CHECKS) this.#options.timedOut();
    else this.#checkSoon();
  }
}

/** The time for which a session certainly lives, by its grants. */
export class SessionValidity {
  readonly #expired: () => void;
  #grant: LeaseGrant;
  #extended = Promise.withResolvers<void>();
  #stopExpiry = () => {};

  /** `expired` is called at the end of the last grant. */
  constructor(ttl: Millis, expired: () => void) {
    this.#grant = { ttl, sentAt: instant() };
    this.#expired = expired;
  }

  get grant(): LeaseGrant {
    return this.#grant;
  }

  /** Resolves at the next grant, or when no other grant will come. */
  get extended(): Promise<void> {
    return this.#extended.promise;
  }

  remaining(): Millis {
    const { ttl, sentAt } = this.#grant;
    return ttl - driftMargin(ttl) - elapsedSince(sentAt);
  }

  /** Extends the validity; an older grant changes nothing. */
  extend(grant: LeaseGrant): void {
    if (grant.sentAt.mono < this.#grant.sentAt.mono) return;
    this.#grant = grant;
    this.#notify();
    this.#watchExpiry();
  }

  stop(): void {
    this.#stopExpiry();
    this.#notify();
  }

  #notify(): void {
    this.#extended.resolve();
    this.#extended = Promise.withResolvers<void>();
  }

  #watchExpiry(): void {
    this.#stopExpiry();
    const check = () => (this.remaining() > 0 ? this.#watchExpiry() : this.#expired());
    this.#stopExpiry = after(Math.ceil(this.remaining()), check, { idle: true });
  }
}
