import type { Duration } from "./duration.ts";
import type { Fence } from "./fence.ts";
import type { Incidents } from "./incidents.ts";
import type { Deadline, Millis } from "./time.ts";
import type { WakeUps } from "./wake-ups.ts";

/** The members of every held lock, valid until its signal aborts. */
export interface Held extends AsyncDisposable {
  /**
   * Aborts with a LockLostError no later than the lock expires at the store. Pass it to all work under the lock.
   *
   * No timer fires while a function is frozen, so also call `assertHeld` right before an effect.
   */
  readonly signal: AbortSignal;

  /**
   * Throws a LockLostError unless the lock is provably held now, and for `spare` (milliseconds, or a text such as "2s")
   * more. Synchronous.
   */
  assertHeld(spare?: Duration): void;

  /**
   * Renews unless the lock is provably held for `span` (milliseconds, or a text such as "2s") more. Rejects with a
   * LockLostError if the renewal fails, and at once, without a request, if `span` is more than is left of `maxHold`; with an
   * UnknownOutcomeError without an answer at the `deadline`, or after 2 s; with a StoreUnavailableError when the store
   * certainly did not renew, and the lock is held until its old expiry.
   */
  ensure(span: Duration): Promise<void>;

  /**
   * Releases the lock. `was-lost`: the lock had expired or had another holder, which keeps it.
   *
   * A second call gives the same answer. Rejects with an UnknownOutcomeError when the store has not answered after one
   * ttl, after 10 s, or at the `deadline`: then the lock expires by itself.
   */
  unlock(): Promise<Unlocked>;

  /** Calls `unlock` and ignores a rejection. */
  [Symbol.asyncDispose](): Promise<void>;
}

export type Unlocked = "released" | "was-lost";

/** Exclusive use of `name`. */
export interface Lock extends Held {
  readonly name: string;
  readonly fence: Fence;

  /**
   * Changes the value in what the holder says of itself, with a renewal. Only for stores that keep one record per lock.
   * Rejects with a LockLostError when the lock is lost, and as the store does: then a later renewal may write the value.
   *
   * @internal
   */
  proclaim?(value: string): Promise<void>;
}

/** Exclusive use of several names at once. */
export interface LockSet extends Held {
  /** Sorted, without duplicates. */
  readonly names: readonly string[];

  /** By name. */
  readonly fences: ReadonlyMap<string, Fence>;
}

export interface TryLockOptions {
  /**
   * How long the store keeps the lock without a renewal, in milliseconds or as a text such as "10s".
   *
   * "invocation": until shortly after `deadline`, without renewal.
   */
  readonly ttl: Duration | "invocation";

  /** Whether to renew in the background, at a third of the ttl. Default true; false in functions that may be frozen. */
  readonly renew?: boolean | undefined;

  /** The end of the current invocation. The ttl "invocation" needs it. No call outlasts it by more than 0.5 s. */
  readonly deadline?: Deadline | undefined;

  /**
   * The longest time for which the lock is held, with renewals. Then its signal aborts. Default: one day. Infinity: no
   * limit.
   *
   * A renewal asks the store for one ttl, or for more where `ensure` needs more, and never for more than is left of this.
   */
  readonly maxHold?: Duration | undefined;

  /**
   * How long an expired lock stays reserved: for resources that cannot check a fence.
   *
   * A released lock is free at once. Default 0. Only for stores with `traits.lockDelay`.
   */
  readonly lockDelay?: Duration | undefined;

  /** Ends the wait: the call rejects with the signal's reason, and nothing is held. */
  readonly signal?: AbortSignal | undefined;

  /**
   * The purpose of the lock, in `inspect`.
   *
   * @internal
   */
  readonly work?: Pick<HolderInfo, "run" | "step" | "value"> | undefined;
}

export interface LockOptions extends TryLockOptions {
  /**
   * How long to wait for the lock, in milliseconds or as a text such as "5s"; 0 makes one attempt. Infinity needs a
   * `signal`.
   */
  readonly wait: Duration;
}

/** The holder's description of itself, for humans: the text may be shortened, and proves nothing. */
export interface HolderInfo {
  /**
   * When the holder requested the lock, by the holder's clock, or by the server's for holders that are not Lockstep's. On
   * stores with a queue, a holder may have waited since then.
   */
  readonly since?: Date | undefined;
  readonly host?: string | undefined;
  readonly pid?: number | undefined;

  /** The program and its first arguments, without options. */
  readonly command?: string | undefined;

  /** The run of a workflow, and the key of its step. */
  readonly run?: string | undefined;
  readonly step?: string | undefined;

  /** The value of the leader of an election. On stores with a queue of candidates, the holder is the value. */
  readonly value?: string | undefined;

  /** How often the leader has changed its value. */
  readonly revision?: number | undefined;
}

/** A waiter in the queue at the store. A lost waiter is listed until its session ends, or until its turn. */
export interface WaiterInfo extends HolderInfo {
  /** The waiter's label and unique id. */
  readonly id: string;

  /** When the waiter requested the lock, by its own clock or the store's; undefined if the store has no record of it. */
  readonly since?: Date | undefined;
}

/** A snapshot of a lock. The snapshot may be out of date when you read it, and proves nothing. */
export interface LockInfo {
  readonly name: string;

  /** The holder's label and unique id; undefined for a free lock. */
  readonly holder: string | undefined;

  /** The holder's description of itself; undefined for a free lock. */
  readonly about: HolderInfo | undefined;

  /** Milliseconds until the lock expires unless renewed, by the store's clock. */
  readonly expiresIn: Millis | undefined;

  /** The last fence, as text; undefined where the store has none: never locked, or free and forgotten. */
  readonly fence: string | undefined;

  /** The number of waiters: those of this client, and those in the queue at the store. */
  readonly waiters: number;

  /** The first 100 waiters in the queue at the store, in order. Undefined in lists, and for stores without a queue. */
  readonly queue?: readonly WaiterInfo[] | undefined;
}

/** The properties of a store beyond the contract. The conformance suite reads the traits. */
export interface StoreTraits {
  readonly name: string;

  /** Waiters of different clients get the lock in order of arrival. */
  readonly fair: boolean;

  /** The store notifies a waiter of a release; without this, waiters poll. */
  readonly watches: boolean;

  /** Expiry is judged by one clock for all clients. */
  readonly serverClock: boolean;

  /** Other processes can use the same store. */
  readonly shared: boolean;

  /** The store has `lockDelay`. */
  readonly lockDelay: boolean;

  /** The smallest ttl, in milliseconds. */
  readonly minTtl: Millis;
}

/** A client of a lock store. The contract is the same for every store. */
export interface LockStore extends AsyncDisposable {
  readonly traits: StoreTraits;

  /**
   * Tells other processes that runs are due. Undefined for stores that cannot notify.
   *
   * @internal
   */
  readonly wakeUps?: WakeUps | undefined;

  /**
   * Where the clients of the store leave their incidents. Undefined for a store that was not made by this package.
   *
   * @internal
   */
  readonly incidents?: Incidents | undefined;

  /**
   * Resolves once the lock has no holder, without a place in its queue. The lock may have a holder again by then. Rejects with
   * the signal's reason, and when the store does not answer.
   *
   * @internal
   */
  whenFree?(name: string, signal: AbortSignal): Promise<void>;

  /** Makes one attempt, and waits up to 2 s for the store. Resolves to undefined when the lock has another holder. */
  tryLock(name: string, options: TryLockOptions): Promise<Lock | undefined>;

  /**
   * Waits for the lock for up to `wait`, then rejects with a LockTimeoutError. After a rejection nothing is held.
   *
   * When the store does not answer, the call ends within 0.5 s after `wait`, or after 2 s without a wait. A claim whose
   * answer was lost is withdrawn. If the store does not confirm the withdrawal in this time, the call rejects with an
   * UnknownOutcomeError, and the withdrawal goes on in the background. If the network delivers the claim after its
   * withdrawal, the name stays taken without a holder until the claim expires, one ttl after its arrival.
   */
  lock(name: string, options: LockOptions): Promise<Lock>;

  /** Locks all of the names or none, in sorted order, so that two callers never deadlock. */
  lockAll(names: readonly string[], options: LockOptions): Promise<LockSet>;

  /**
   * Runs `body` under the lock, and releases the lock in every case.
   *
   * A failed release never hides the outcome of the body. When the lock was lost while the body ran, rejects with the
   * LockLostError even if the body succeeded: its work may have overlapped with another holder.
   */
  withLock<T>(name: string, options: LockOptions, body: (lock: Lock) => Promise<T>): Promise<T>;

  inspect(name: string): Promise<LockInfo>;

  /** Lists the held locks whose names start with `prefix`, byte for byte, sorted by name. */
  list(prefix?: string): Promise<readonly LockInfo[]>;

  /**
   * Frees a lock that another client holds, if its holder has this fence, or this text of it as `inspect` shows it.
   * Resolves to the lock as it was. Rejects with a FenceInvalidError, and changes nothing, when the lock has another
   * holder or none. For operators.
   *
   * The holder is not stopped: its next renewal tells it of the loss. The next holder's fence is higher, so a
   * resource that checks the fence refuses the late holder from the next holder's first claim on. Of a holder of several
   * names, only this one is freed at once.
   */
  release(name: string, options: { readonly fence: Fence | string }): Promise<LockInfo>;

  /**
   * Raises the generation to at least `least`, and resolves to it. For operators, after a store has lost or set back its
   * tokens (a table emptied, a backup restored): every later fence is above all fences of lower generations.
   * Rejects with a RangeError, and changes nothing, when the generation is 8,388,607, the highest one.
   */
  raiseGeneration(least?: number): Promise<number>;

  /**
   * Ends waits with a StoreClosedError, releases held locks, and lets the process exit. Never rejects, and takes 2 s at
   * the most: locks whose release the store has not answered by then expire by themselves.
   */
  close(): Promise<void>;
}
