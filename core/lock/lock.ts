import type { Fence } from "./fence.ts";
import type { Deadline, Millis } from "./time.ts";

/** What one may do with something held, until its signal aborts. */
export interface Held extends AsyncDisposable {
  /**
   * Aborts with a LockLostError no later than the store's expiry. Pass it to all that is done under the lock.
   *
   * Nothing runs while a function is frozen, so call `assertHeld` right before an effect as well.
   */
  readonly signal: AbortSignal;

  /** Throws a LockLostError unless it is provably held now, and for `spare` milliseconds more. Synchronous. */
  assertHeld(spare?: Millis): void;

  /**
   * Renews unless it is provably held for `span` milliseconds more. Throws a LockLostError if it cannot be:
   * at once, and without asking the store, for more than `maxHold` leaves.
   */
  ensure(span: Millis): Promise<void>;

  /**
   * Gives it back. `was-lost`: it was no longer ours, and nobody was harmed.
   *
   * Calling it again gives the same answer. Rejects with an UnknownOutcomeError when the store does not
   * answer for one ttl: by then it has expired by itself.
   */
  unlock(): Promise<Unlocked>;

  /** `unlock`, but it never rejects. */
  [Symbol.asyncDispose](): Promise<void>;
}

export type Unlocked = "released" | "was-lost";

/** Exclusive use of `name`. */
export interface Lock extends Held {
  readonly name: string;
  readonly fence: Fence;
}

/** Exclusive use of several names at once. */
export interface LockSet extends Held {
  /** Sorted, each once. */
  readonly names: readonly string[];

  /** By name. */
  readonly fences: ReadonlyMap<string, Fence>;
}

export interface TryLockOptions {
  /**
   * How long the store keeps the lock for a holder that it has stopped hearing from, in milliseconds.
   *
   * "invocation": until shortly after `deadline`, and never renewed.
   */
  readonly ttl: Millis | "invocation";

  /** Renew in the background at a third of the ttl. Default true; false for functions that may be frozen. */
  readonly renew?: boolean;

  /** The end of the current invocation: needed for the ttl "invocation", and no wait outlasts it. */
  readonly deadline?: Deadline;

  /**
   * The longest time the lock is held, renewed or not. Its signal aborts then. Default: a day.
   *
   * A renewal asks the store for one ttl, or more where `ensure` needs it, and for no more than is left of this.
   */
  readonly maxHold?: Millis;

  /**
   * How long nobody may take the lock after it has expired: for resources that cannot check a fence.
   *
   * A lock that was given back is free at once. Default 0. Only where `traits.lockDelay` says so.
   */
  readonly lockDelay?: Millis;

  /** Gives up waiting; the call rejects with the signal's own reason, and nothing is held. */
  readonly signal?: AbortSignal;
}

export interface LockOptions extends TryLockOptions {
  /** How long to stand in line, in milliseconds; 0 tries once. Infinity only together with `signal`. */
  readonly wait: Millis;
}

/** What is known of a lock right now. It may be out of date when you read it, and proves nothing. */
export interface LockInfo {
  readonly name: string;
  readonly holder: string | undefined;

  /** Milliseconds until the holder's lock expires unless renewed, by the store's clock. */
  readonly expiresIn: Millis | undefined;

  /** The last fence handed out, as text; undefined where none is known: never locked, or free and forgotten. */
  readonly fence: string | undefined;

  /** How many wait: those of this client and, where `traits.fair`, those in line at the store. */
  readonly waiters: number;
}

/** What a store gives beyond the minimum. The conformance suite reads it. */
export interface StoreTraits {
  readonly name: string;

  /** Waiters of different clients get the lock in the order in which they asked. */
  readonly fair: boolean;

  /** A waiter is told of a release instead of asking again and again. */
  readonly watches: boolean;

  /** Expiry is judged by a clock that all clients share. */
  readonly serverClock: boolean;

  /** Other processes can use the same store. */
  readonly shared: boolean;

  /** `lockDelay` works. */
  readonly lockDelay: boolean;

  /** The smallest ttl, in milliseconds. */
  readonly minTtl: Millis;
}

/** Locks of one backend. All of it takes any backend: nothing here depends on which one it is. */
export interface LockStore extends AsyncDisposable {
  readonly traits: StoreTraits;

  /** One attempt that never waits for others; undefined when somebody else has the lock. */
  tryLock(name: string, options: TryLockOptions): Promise<Lock | undefined>;

  /**
   * Stands in line for up to `wait`, then rejects with a LockTimeoutError. When it rejects, nothing is held.
   *
   * A claim whose answer was lost is withdrawn. If the network delivers that claim after its withdrawal, the name
   * is taken by nobody until it expires, one ttl after it has arrived.
   */
  lock(name: string, options: LockOptions): Promise<Lock>;

  /** All of the names or none, taken in sorted order so that two callers never wait for each other. */
  lockAll(names: readonly string[], options: LockOptions): Promise<LockSet>;

  /**
   * Runs `body` while holding the lock, and gives the lock back in every case.
   *
   * A failed release never hides the body's outcome. When the lock was lost while the body ran, it rejects
   * with the LockLostError even if the body succeeded: what the body did may have met another holder.
   */
  withLock<T>(name: string, options: LockOptions, body: (lock: Lock) => Promise<T>): Promise<T>;

  inspect(name: string): Promise<LockInfo>;

  /** The locks held right now whose names start with `prefix`, byte for byte, sorted by name. */
  list(prefix?: string): Promise<readonly LockInfo[]>;

  /**
   * For an operator, after tokens were lost or set back (a table emptied, a backup restored): every later
   * fence is above every fence of a lower generation. Resolves to the generation, now at least `least`.
   * Rejects with a RangeError, and changes nothing, when it is 8,388,607 already: there is none above.
   */
  raiseGeneration(least?: number): Promise<number>;

  /** Ends waits with a StoreClosedError, gives back what is held, and lets the process exit. Never rejects. */
  close(): Promise<void>;
}
