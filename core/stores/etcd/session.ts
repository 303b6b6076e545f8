import type { Etcd, Lease } from "../../etcd/etcd.ts";
import { checkSpan } from "../../lock/checks.ts";
import { type LossReason, SessionExpiredError } from "../../lock/errors.ts";
import { Life } from "../../lock/life.ts";
import { Line } from "../../lock/line.ts";
import type { Millis } from "../../lock/time.ts";
import { HeldLease, hex } from "./lease.ts";
import type { Place } from "./place.ts";

export interface SessionOptions {
  /** How long etcd keeps the session's keys after it has last heard of it, in milliseconds. Default 60,000. */
  readonly ttl?: Millis;

  /** A lease that is there already, with a ttl of its own; `ttl` does not matter then. */
  readonly lease?: Lease;

  /** When it aborts, the session is abandoned: no longer kept alive, and not revoked. */
  readonly signal?: AbortSignal;
}

/** A lease that is kept alive. What hangs on it, mutexes and elections, is lost when it is lost. */
export class Session implements AsyncDisposable {
  readonly #held: HeldLease;
  readonly #life: Life;

  /** One mutex of this session at a time for each prefix: they would all have the same key. */
  readonly line = new Line(Number.POSITIVE_INFINITY);

  /** Places in line that one mutex of this session has left to the next, by prefix. */
  readonly places = new Map<string, Place>();

  /** For those who have a lease; others call `Session.open`. */
  constructor(held: HeldLease) {
    this.#held = held;
    this.#life = new Life({
      ...held.granted,
      names: [],
      auto: true,
      maxHold: Number.POSITIVE_INFINITY,
      renew: (_, signal) => held.renew(signal),
      notify: () => {},
      lost: (why) => new SessionExpiredError(hex(held.id), HOW[why]),
    });
  }

  /**
   * Opens a session, with one call. Rejects with a RangeError or TypeError for a ttl that is none, with a
   * SessionExpiredError when the given lease is gone, or as etcd does.
   */
  static async open(etcd: Etcd, options: SessionOptions = {}): Promise<Session> {
    const { ttl = 60_000, lease, signal } = options;
    checkSpan("ttl", ttl, 1_000);
    signal?.throwIfAborted();
    const held =
      lease === undefined
        ? await HeldLease.grant(etcd, ttl, signal)
        : await HeldLease.adopt(etcd, lease, signal);
    if (signal?.aborted) {
      if (lease === undefined) void held.revoke();
      throw signal.reason;
    }
    const session = new Session(held);
    const abandon = () => session.orphan();
    signal?.addEventListener("abort", abandon, { once: true });
    session.signal.addEventListener("abort", () => signal?.removeEventListener("abort", abandon));
    return session;
  }

  /** The lease's id. */
  get id(): Lease {
    return this.#held.id;
  }

  /** As granted by etcd, in milliseconds. */
  get ttl(): Millis {
    return this.#held.ttl;
  }

  /** Aborts with a SessionExpiredError when the session ends, and no later than etcd lets it expire. */
  get signal(): AbortSignal {
    return this.#life.signal;
  }

  /** Resolves when the session ends, however it does. */
  get done(): Promise<void> {
    const { signal } = this;
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => signal.addEventListener("abort", () => resolve()));
  }

  /** Milliseconds for which the session certainly lives; 0 once it has ended. */
  remaining(): Millis {
    return this.#life.remaining();
  }

  /** Throws a SessionExpiredError unless it certainly lives now. Synchronous. */
  assertAlive(): void {
    this.#life.assertHeld();
  }

  /** No longer keeps the lease alive, and leaves it to whoever has its id. */
  orphan(): void {
    this.#life.end("released");
  }

  /** Ends the session, and deletes its keys as far as etcd can be reached: otherwise they expire. Never rejects. */
  async close(): Promise<void> {
    this.#life.end("closed");
    await this.#held.revoke();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

const HOW: Partial<Record<LossReason, string>> = { released: "was orphaned", closed: "was closed" };
