import { follow, race } from "../../../lock/abort.ts";
import { checkText } from "../../../lock/checks.ts";
import { Leadership } from "../../../lock/leadership.ts";
import type { Unlocked } from "../../../lock/lock.ts";
import { checkOptionNames, type OptionNames } from "../../../lock/options.ts";
import type { Compare, Etcd, Revision } from "../client/etcd.ts";
import { enter, enterIfFree } from "./enter.ts";
import { hex } from "./lease.ts";
import { type EntryKeys, queueKeysOf } from "./queue.ts";
import { EtcdQueueEntry } from "./queue-entry.ts";
import type { EtcdSession } from "./session.ts";

export interface MutexOptions {
  /** The value of the key, for humans. Default "", as in Go. */
  readonly value?: string;

  /**
   * As in Go: mutexes of one session with one prefix share their key, so the lock of the second one succeeds at once,
   * and the unlock of the first one releases both. Default false: they exclude each other.
   */
  readonly reentrant?: boolean;
}

const MUTEX_OPTIONS = { value: true, reentrant: true } satisfies OptionNames<MutexOptions>;

/** How often the mutexes of one session may hand an entry over before other sessions get the lock. */
const MOST_HAND_OVERS = 32;

/**
 * A lock in etcd on the keys of Go's clientv3/concurrency and of `etcdctl lock`: PREFIX/LEASE, held by the oldest key. Any
 * prefix is allowed, and taken literally. Keys of nested prefixes are skipped; Go waits for them.
 *
 * The mutexes of one session hand the entry over without a call to etcd, so they share `revision`. Locks from `etcdLocks`
 * have a fence of their own each time.
 */
export class EtcdMutex {
  readonly #etcd: Etcd;
  readonly #session: EtcdSession;
  readonly #queue: string;
  readonly #options: Required<MutexOptions>;
  #locking: Promise<void> | undefined;
  #unlocking: Promise<Unlocked> | undefined;

  /** Whether `lock` was called during the release under way, after which it takes the lock. */
  #isLockedAnew = false;
  #waiting = new AbortController();
  readonly #leadership: Leadership<EtcdQueueEntry>;

  constructor(etcd: Etcd, session: EtcdSession, prefix: string, options: MutexOptions = {}) {
    checkText("prefix", prefix, 1_000);
    checkOptionNames("EtcdMutex", options, MUTEX_OPTIONS);
    this.#etcd = etcd;
    this.#session = session;
    this.#queue = `${prefix}/`;
    this.#options = { value: "", reentrant: false, ...options };
    this.#leadership = new Leadership({ session, store: etcd.address, name: prefix });
  }

  /**
   * Resumes the mutex that another process, or an earlier run of this one, has locked with this session's lease. It is
   * reentrant: it does not exclude the session's other mutexes.
   */
  static resume(etcd: Etcd, session: EtcdSession, prefix: string, revision: Revision): EtcdMutex {
    const mutex = new EtcdMutex(etcd, session, prefix, { reentrant: true });
    mutex.#leadership.begin(EtcdQueueEntry.at(etcd, mutex.#keys(), revision));
    return mutex;
  }

  /** The key of this session under the prefix, whether or not the key exists. */
  get key(): string {
    return this.#queue + hex(this.#session.id);
  }

  /** The create revision of the key, the fencing token; undefined while this mutex does not hold the lock. */
  get revision(): Revision | undefined {
    return this.#leadership.entry?.token;
  }

  /** Aborts when the lock is lost or released; aborted while this mutex does not hold the lock. */
  get signal(): AbortSignal {
    return this.#leadership.signal;
  }

  /**
   * Waits in the queue until it holds the lock. Returns at once when this mutex holds the lock already.
   *
   * Rejects with a SessionExpiredError as soon as the session, or the key, is gone; with the signal's reason; or as etcd
   * does. No key is left in the queue then, unless etcd executes an unanswered request later: such a key stays until
   * the session is closed.
   */
  async lock({ signal }: { readonly signal?: AbortSignal } = {}): Promise<void> {
    this.#isLockedAnew = this.#unlocking !== undefined;
    // A second caller shares the outcome of the first one, unless the first one gives up.
    for (let other = this.#locking; other; other = this.#locking) {
      const settled = other.catch(() => {});
      await (signal ? race(settled, signal) : settled);
    }
    this.#locking = this.#lock(signal).finally(() => {
      this.#locking = undefined;
    });
    await this.#locking;
  }

  /** Attempts once, without waiting and without entering the queue. Resolves to false when another holder has the lock. */
  async tryLock({ signal }: { readonly signal?: AbortSignal } = {}): Promise<boolean> {
    if (this.#unlocking) await this.#unlocking.catch(() => {});
    if (this.#isHeld()) return true;
    if (!this.#options.reentrant && !this.#session.queue.tryEnter(this.#queue)) return false;
    const scope = follow(signal, this.#session.signal);
    try {
      scope.signal.throwIfAborted();
      const entering = { signal: scope.signal, adopt: true };
      const entry = await enterIfFree(this.#etcd, this.#keys(), entering);
      if (entry) await this.#beginUnless(scope.signal, entry);
    } finally {
      scope[Symbol.dispose]();
      if (!this.#leadership.entry) this.#leaveQueue();
    }
    return this.#leadership.entry !== undefined;
  }

  /**
   * Deletes the key if it is still the one that was locked; a waiting mutex leaves the queue. Resolves to `was-lost` when
   * the key was gone already.
   *
   * Rejects with a LockReleasedError when this mutex neither holds nor waits, and with an UnknownOutcomeError when etcd
   * does not answer for one ttl; then it may be called again.
   */
  unlock(): Promise<Unlocked> {
    const before = this.#unlocking;
    if (before && !this.#isLockedAnew) return before;
    this.#isLockedAnew = false;
    const call = before ? before.catch(() => {}).then(() => this.#unlock()) : this.#unlock();
    const unlocking = call.finally(() => {
      if (this.#unlocking === unlocking) this.#unlocking = undefined;
    });
    this.#unlocking = unlocking;
    return unlocking;
  }

  /** Returns a condition for the caller's own transaction: true as long as this mutex holds the lock. Throws otherwise. */
  isOwner(): Compare {
    const [compare] = this.#leadership.entry?.isOurs() ?? [];
    if (!compare) throw this.#leadership.released();
    return compare;
  }

  async #lock(signal: AbortSignal | undefined): Promise<void> {
    this.#waiting = new AbortController();
    if (this.#unlocking) await this.#unlocking.catch(() => {});
    if (this.#isHeld()) return;
    const scope = follow(signal, this.#session.signal, this.#waiting.signal);
    try {
      scope.signal.throwIfAborted();
      if (!this.#options.reentrant) await this.#session.queue.enter(this.#queue, scope.signal);
      try {
        await this.#beginUnless(scope.signal, await this.#firstEntry(scope.signal));
      } finally {
        if (!this.#leadership.entry) this.#leaveQueue();
      }
    } finally {
      scope[Symbol.dispose]();
    }
  }

  async #unlock(): Promise<Unlocked> {
    if (this.#locking) {
      this.#waiting.abort(this.#leadership.released());
      await this.#locking.catch(() => {});
      if (!this.#leadership.entry) return "released";
    }
    if (!this.#leadership.entry) throw this.#leadership.released();
    let isHandedOver = false;
    const outcome = await this.#leadership.giveUp((entry) => {
      isHandedOver = this.#handOver(entry);
      return isHandedOver;
    });
    if (!isHandedOver) this.#leaveQueue();
    return outcome;
  }

  /** Resolves to an entry without predecessors. */
  async #firstEntry(signal: AbortSignal): Promise<EtcdQueueEntry> {
    const left = this.#session.entries.get(this.#queue);
    this.#session.entries.delete(this.#queue);
    const entry = left ?? (await enter(this.#etcd, this.#keys(), { signal, adopt: true }));
    try {
      signal.throwIfAborted();
      if (!left) await entry.waitForTurn(signal);
      return entry;
    } catch (error) {
      await this.#leadership.decline(entry);
      throw error;
    }
  }

  #isHeld(): boolean {
    if (this.#leadership.entry && this.signal.aborted) {
      this.#leadership.forget();
      this.#leaveQueue();
    }
    return this.#leadership.entry !== undefined;
  }

  #keys(): EntryKeys {
    const { id, ttl } = this.#session;
    return { keys: queueKeysOf([this.#queue], id), lease: id, value: this.#options.value, ttl };
  }

  /** Declines the entry when the signal has aborted: an abort may coincide with the last answer. */
  async #beginUnless(signal: AbortSignal, entry: EtcdQueueEntry): Promise<void> {
    if (!signal.aborted) return this.#leadership.begin(entry);
    await this.#leadership.decline(entry);
    throw signal.reason;
  }

  /** Leaves the entry to the next mutex of this session, unless other sessions have waited long enough. */
  #handOver(entry: EtcdQueueEntry): boolean {
    const { queue, entries } = this.#session;
    if (this.#options.reentrant || queue.waiting(this.#queue) === 0) return false;
    entry.handOvers += 1;
    if (entry.handOvers > MOST_HAND_OVERS) return false;
    entries.set(this.#queue, entry);
    // In the same turn: the next mutex may give up before another one.
    this.#leaveQueue();
    return true;
  }

  #leaveQueue(): void {
    if (!this.#options.reentrant) this.#session.queue.leave(this.#queue);
  }
}
