import { LONGEST_SPAN, wrongType } from "../../../lock/checks.ts";
import { type Duration, toMillis } from "../../../lock/duration.ts";
import { type LossReason, SessionExpiredError } from "../../../lock/errors.ts";
import { KeyedQueue } from "../../../lock/keyed-queue.ts";
import { Lease } from "../../../lock/lease.ts";
import { checkOptionNames, type OptionNames } from "../../../lock/options.ts";
import type { Millis } from "../../../lock/time.ts";
import type { Etcd, LeaseId } from "../client/etcd.ts";
import { EtcdLease, hex } from "./lease.ts";
import type { EtcdQueueEntry } from "./queue-entry.ts";

export interface SessionOptions {
  /**
   * How long etcd keeps the session's keys after the last keepalive, in milliseconds or as a text such as "60s". Default
   * 60,000.
   */
  readonly ttl?: Duration;

  /** An existing lease, which has a ttl of its own; `ttl` is ignored then. */
  readonly lease?: LeaseId;

  /** When it aborts, the session is abandoned: no longer kept alive, and not revoked. */
  readonly signal?: AbortSignal;
}

const SESSION_OPTIONS = {
  ttl: true,
  lease: true,
  signal: true,
} satisfies OptionNames<SessionOptions>;

/** A lease that is kept alive. Mutexes and elections of the session are lost when the session ends. */
export class EtcdSession implements AsyncDisposable {
  readonly #lease: EtcdLease;
  readonly #life: Lease;
  #done: Promise<void> | undefined;

  /**
   * One mutex of this session at a time for each prefix: all of them would have the same key.
   *
   * @internal
   */
  readonly queue = new KeyedQueue(Number.POSITIVE_INFINITY);

  /**
   * The entries that one mutex of this session has left to the next one, by prefix.
   *
   * @internal
   */
  readonly entries = new Map<string, EtcdQueueEntry>();

  /**
   * Keeps an existing lease alive; users call `EtcdSession.open`.
   *
   * @internal
   */
  constructor(lease: EtcdLease) {
    this.#lease = lease;
    this.#life = new Lease({
      ...lease.granted,
      names: [],
      autoRenew: true,
      maxHold: Number.POSITIVE_INFINITY,
      renew: (_, signal) => lease.renew(signal),
      toLossError: (why) => new SessionExpiredError(hex(lease.id), HOW[why]),
    });
  }

  /**
   * Opens a session, with one call. Rejects with a RangeError or TypeError for an invalid ttl or lease, with a SessionExpiredError
   * when the given lease is gone, or as etcd does.
   */
  static async open(etcd: Etcd, options: SessionOptions = {}): Promise<EtcdSession> {
    checkOptionNames("EtcdSession.open", options, SESSION_OPTIONS);
    const { lease: id, signal } = options;
    if (id !== undefined && typeof id !== "bigint") throw wrongType("lease", "a bigint", id);
    const ttl = toMillis("ttl", options.ttl ?? 60_000, 1_000, LONGEST_SPAN);
    signal?.throwIfAborted();
    const lease =
      id === undefined
        ? await EtcdLease.grant(etcd, ttl, signal)
        : await EtcdLease.adopt(etcd, id, signal);
    if (signal?.aborted) {
      if (id === undefined) void lease.revoke();
      throw signal.reason;
    }
    const session = new EtcdSession(lease);
    const abandon = () => session.orphan();
    signal?.addEventListener("abort", abandon, { once: true });
    session.signal.addEventListener("abort", () => signal?.removeEventListener("abort", abandon));
    return session;
  }

  /** The id of the lease. */
  get id(): LeaseId {
    return this.#lease.id;
  }

  /** As granted by etcd, in milliseconds. */
  get ttl(): Millis {
    return this.#lease.ttl;
  }

  /** Aborts with a SessionExpiredError when the session ends, no later than etcd lets the lease expire. */
  get signal(): AbortSignal {
    return this.#life.signal;
  }

  /** Resolves when the session ends, for any reason. */
  get done(): Promise<void> {
    const { signal } = this;
    // One promise for all readers: each loop that awaits the session would add a listener.
    this.#done ??= new Promise((resolve) => {
      if (signal.aborted) resolve();
      else signal.addEventListener("abort", () => resolve(), { once: true });
    });
    return this.#done;
  }

  /** Milliseconds for which the session certainly lives; 0 once it has ended. */
  remaining(): Millis {
    return this.#life.remaining();
  }

  /** Throws a SessionExpiredError unless the session certainly lives now. Synchronous. */
  assertAlive(): void {
    this.#life.assertHeld();
  }

  /** Stops to keep the lease alive, and leaves it to a process that has its id. */
  orphan(): void {
    this.#life.end("released");
  }

  /** Ends the session and deletes its keys, as far as etcd can be reached; otherwise the keys expire. Never rejects. */
  async close(): Promise<void> {
    this.#life.end("closed");
    await this.#lease.revoke();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

const HOW: Partial<Record<LossReason, string>> = { released: "was orphaned", closed: "was closed" };
