import type { Compare, Etcd, Revision } from "../../etcd/etcd.ts";
import { follow, race } from "../../lock/abort.ts";
import { checkText } from "../../lock/checks.ts";
import type { Unlocked } from "../../lock/lock.ts";
import { Tenure } from "../../lock/tenure.ts";
import { hex } from "./lease.ts";
import { Place, spotsOf } from "./place.ts";
import type { Session } from "./session.ts";

export interface MutexOptions {
  /** What stands in the key, for humans. Default "", as Go has it. */
  readonly value?: string;

  /**
   * As in Go: mutexes of one session with one prefix share their key, so the second one's lock succeeds at
   * once, and the first one's unlock frees both. Default false: they exclude each other.
   */
  readonly reentrant?: boolean;
}

/** How often a mutex may hand its place to the next of its session before those of other sessions get it. */
const MOST_HAND_OVERS = 32;

/**
 * A lock in etcd on the keys of Go's clientv3/concurrency and of `etcdctl lock`: PREFIX/LEASE, held by the
 * oldest. Any prefix goes, and is taken as it is; one that is a prefix of another up to a "/" waits for it.
 *
 * Those of one session hand the place over among themselves without asking etcd, so they share `revision`.
 * Locks that need a fence of their own each time come from `etcdStore`.
 */
export class Mutex {
  readonly #etcd: Etcd;
  readonly #session: Session;
  readonly #queue: string;
  readonly #options: Required<MutexOptions>;
  #locking: Promise<void> | undefined;
  #unlocking: Promise<Unlocked> | undefined;
  #waiting = new AbortController();
  readonly #hold: Tenure<Place>;

  constructor(etcd: Etcd, session: Session, prefix: string, options: MutexOptions = {}) {
    checkText("prefix", prefix, 1_000);
    this.#etcd = etcd;
    this.#session = session;
    this.#queue = `${prefix}/`;
    this.#options = { value: "", reentrant: false, ...options };
    this.#hold = new Tenure({ session, store: etcd.address, name: prefix });
  }

  /**
   * The mutex that another process, or an earlier life of this one, has locked with this session's lease. It is
   * reentrant: this session's other mutexes are not excluded by it.
   */
  static resume(etcd: Etcd, session: Session, prefix: string, revision: Revision): Mutex {
    const mutex = new Mutex(etcd, session, prefix, { reentrant: true });
    mutex.#hold.begin(Place.at(etcd, mutex.#standing(), revision));
    return mutex;
  }

  /** Ours under the prefix, whether or not it exists. */
  get key(): string {
    return this.#queue + hex(this.#session.id);
  }

  /** The key's create revision, the fencing token; undefined while this mutex holds nothing. */
  get revision(): Revision | undefined {
    return this.#hold.place?.revision;
  }

  /** Aborts when what this mutex holds is lost or given back; aborted while it holds nothing. */
  get signal(): AbortSignal {
    return this.#hold.signal;
  }

  /**
   * Stands in line until the lock is ours. Returns at once where this mutex holds it already.
   *
   * Rejects with a SessionExpiredError as soon as the session, or the key, is gone; with the signal's reason;
   * or as etcd does. Nothing is left in the queue then, unless etcd carries out later what it has not
   * answered: such a key stands there until the session is closed.
   */
  async lock({ signal }: { readonly signal?: AbortSignal } = {}): Promise<void> {
    // Who comes while another caller waits has the outcome of that, unless that one gives up.
    for (let other = this.#locking; other; other = this.#locking) {
      const settled = other.catch(() => {});
      await (signal ? race(settled, signal) : settled);
    }
    this.#locking = this.#lock(signal).finally(() => {
      this.#locking = undefined;
    });
    await this.#locking;
  }

  /** One attempt that never waits and never stands in line. False: somebody else has it. */
  async tryLock({ signal }: { readonly signal?: AbortSignal } = {}): Promise<boolean> {
    if (this.#unlocking) await this.#unlocking.catch(() => {});
    if (this.#isHeld()) return true;
    if (!this.#options.reentrant && !this.#session.line.tryEnter(this.#queue)) return false;
    const scope = follow(signal, this.#session.signal);
    try {
      scope.signal.throwIfAborted();
      const entering = { signal: scope.signal, adopt: true };
      const place = await Place.enterFree(this.#etcd, this.#standing(), entering);
      if (place) await this.#keepUnless(scope.signal, place);
    } finally {
      scope[Symbol.dispose]();
      if (!this.#hold.place) this.#leaveLine();
    }
    return this.#hold.place !== undefined;
  }

  /**
   * Deletes the key if it is still the one that was locked; of a waiter, it leaves the queue. `was-lost`: the
   * key was gone already, and nobody was harmed.
   *
   * Rejects with a LockReleasedError when this mutex neither holds nor waits, and with an UnknownOutcomeError
   * when etcd does not answer for one ttl; then it may be called again.
   */
  unlock(): Promise<Unlocked> {
    this.#unlocking ??= this.#unlock().finally(() => {
      this.#unlocking = undefined;
    });
    return this.#unlocking;
  }

  /** For a caller's own transaction: true as long as this mutex holds the lock. Throws when it holds nothing. */
  isOwner(): Compare {
    const [compare] = this.#hold.place?.isOurs() ?? [];
    if (!compare) throw this.#hold.released();
    return compare;
  }

  async #lock(signal: AbortSignal | undefined): Promise<void> {
    this.#waiting = new AbortController();
    if (this.#unlocking) await this.#unlocking.catch(() => {});
    if (this.#isHeld()) return;
    const scope = follow(signal, this.#session.signal, this.#waiting.signal);
    try {
      scope.signal.throwIfAborted();
      if (!this.#options.reentrant) await this.#session.line.enter(this.#queue, scope.signal);
      try {
        await this.#keepUnless(scope.signal, await this.#stand(scope.signal));
      } finally {
        if (!this.#hold.place) this.#leaveLine();
      }
    } finally {
      scope[Symbol.dispose]();
    }
  }

  async #unlock(): Promise<Unlocked> {
    if (this.#locking) {
      this.#waiting.abort(this.#hold.released());
      await this.#locking.catch(() => {});
      if (!this.#hold.place) return "released";
    }
    if (!this.#hold.place) throw this.#hold.released();
    const outcome = await this.#hold.giveUp((place) => this.#handOver(place));
    this.#leaveLine();
    return outcome;
  }

  /** A place with nobody before it. */
  async #stand(signal: AbortSignal): Promise<Place> {
    const left = this.#session.places.get(this.#queue);
    this.#session.places.delete(this.#queue);
    const entering = { signal, adopt: true };
    const place = left ?? (await Place.enter(this.#etcd, this.#standing(), entering));
    try {
      signal.throwIfAborted();
      if (!left) await place.turn(this.#session.signal, signal);
      return place;
    } catch (error) {
      await this.#hold.decline(place);
      throw error;
    }
  }

  #isHeld(): boolean {
    if (this.#hold.place && this.signal.aborted) {
      this.#hold.forget();
      this.#leaveLine();
    }
    return this.#hold.place !== undefined;
  }

  #standing() {
    const { id, ttl } = this.#session;
    return { spots: spotsOf([this.#queue], id), lease: id, value: this.#options.value, ttl };
  }

  /** An abort may have come together with the last answer. */
  async #keepUnless(signal: AbortSignal, place: Place): Promise<void> {
    if (!signal.aborted) return this.#hold.begin(place);
    await this.#hold.decline(place);
    throw signal.reason;
  }

  /** Leaves the place to the next mutex of this session, unless other sessions have waited long enough. */
  #handOver(place: Place): boolean {
    const { line, places } = this.#session;
    if (this.#options.reentrant || line.waiting(this.#queue) === 0) return false;
    place.handOvers += 1;
    if (place.handOvers > MOST_HAND_OVERS) return false;
    places.set(this.#queue, place);
    return true;
  }

  #leaveLine(): void {
    if (!this.#options.reentrant) this.#session.line.leave(this.#queue);
  }
}
