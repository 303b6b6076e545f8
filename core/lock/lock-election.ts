import { race, sleep } from "./abort.ts";
import { LONGEST_SPAN } from "./checks.ts";
import { toMillis } from "./duration.ts";
import {
  type CandidateEntry,
  checkElection,
  type ElectionQueue,
  type Elections,
  electionOn,
  type Leader,
} from "./election.ts";
import { hasCode, SessionExpiredError } from "./errors.ts";
import { type Fence, fenceOwner } from "./fence.ts";
import { checkValue } from "./holder.ts";
import type { Lock, LockStore } from "./lock.ts";
import { isHeld } from "./lock-handle.ts";
import { readWhenAvailable } from "./retry.ts";
import { jittered, type Millis } from "./time.ts";

/**
 * Elections over locks that are kept as one record each: the holder leads, and its record has the value. The order of the
 * candidates is that of the lock's waiters.
 */
export function lockElections(locks: LockStore): Elections {
  return {
    async open(name, options) {
      const { ttl, signal } = checkElection(name, options);
      signal?.throwIfAborted();
      const span = toMillis("ttl", ttl, locks.traits.minTtl, LONGEST_SPAN);
      return electionOn(new LockElectionQueue(locks, name, span));
    },
  };
}

/** The pause between two reads of an observer, before jitter. */
const POLL: Millis = 500;

class LockElectionQueue implements ElectionQueue<LockEntry> {
  readonly store: string;
  readonly name: string;
  readonly session: ElectionQueue<LockEntry>["session"];
  readonly #locks: LockStore;

  /** The last lock that was acquired. */
  #lock: Lock | undefined;

  constructor(locks: LockStore, name: string, ttl: Millis) {
    this.#locks = locks;
    this.store = locks.traits.name;
    this.name = name;
    const remaining = () => (this.#lock && isHeld(this.#lock) ? 1 : 0);
    this.session = { ttl, signal: new AbortController().signal, remaining };
  }

  checkValue(value: string): void {
    checkValue(value);
  }

  async enter(value: string, signal: AbortSignal): Promise<LockEntry> {
    const forEver = Number.POSITIVE_INFINITY;
    const { ttl } = this.session;
    const options = { ttl, wait: forEver, maxHold: forEver, signal, work: { value } };
    this.#lock = await this.#locks.lock(this.name, options);
    return new LockEntry(this.#locks, this.#lock);
  }

  async write({ lock }: LockEntry, value: string): Promise<boolean> {
    try {
      await lock.proclaim?.(value);
      return true;
    } catch (error) {
      if (hasCode(error, "LOCK_LOST")) return false;
      throw error;
    }
  }

  fenceOf({ lock }: LockEntry): Fence {
    return lock.fence;
  }

  async first(signal?: AbortSignal): Promise<Leader | undefined> {
    const reading = this.#locks.inspect(this.name);
    const { holder, about, fence } = await (signal ? race(reading, signal) : reading);
    if (holder === undefined || fence === undefined) return undefined;
    return {
      key: holder,
      // A holder that is no candidate has no value, and is shown in its place.
      value: about?.value ?? holder,
      token: BigInt(fence.slice(fence.indexOf(".") + 1)),
      revision: BigInt(about?.revision ?? 0),
      fence,
      since: about?.since,
    };
  }

  async *changes(signal: AbortSignal): AsyncGenerator<Leader | undefined> {
    for (;;) {
      yield await readWhenAvailable(() => this.first(signal), signal);
      await sleep(jittered(POLL), signal);
    }
  }
}

/** A lock as the first entry of a queue. */
class LockEntry implements CandidateEntry {
  readonly isAdopted = false;
  readonly lock: Lock;
  readonly #locks: LockStore;
  #isInDoubt = false;

  /**
   * The release under way, or done, which repeats its own requests. Attempts to leave share it, also later ones: it may be
   * done after its caller has given up.
   */
  #leaving: Promise<boolean> | undefined;

  constructor(locks: LockStore, lock: Lock) {
    this.#locks = locks;
    this.lock = lock;
  }

  get key(): string {
    return fenceOwner(this.lock.fence) ?? this.lock.name;
  }

  get token(): bigint {
    return this.lock.fence.token;
  }

  /** The lock is held. */
  async waitForTurn(): Promise<void> {}

  guard(onGone: (loss: Error) => void): () => void {
    const { signal } = this.lock;
    const onAbort = () => {
      onGone(new SessionExpiredError(this.key, `has ended: ${signal.reason.message}`));
    };
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    return () => signal.removeEventListener("abort", onAbort);
  }

  leave(limit: AbortSignal): Promise<boolean> {
    this.#leaving ??= this.#leave().catch((error) => {
      this.#leaving = undefined;
      throw error;
    });
    return race(this.#leaving, limit);
  }

  async #leave(): Promise<boolean> {
    if (this.#isInDoubt) return this.#release();
    try {
      return (await this.lock.unlock()) === "released";
    } catch (error) {
      this.#isInDoubt = true;
      throw error;
    }
  }

  /** Releases the lock by its fence: the outcome of `unlock` stays unknown. */
  async #release(): Promise<boolean> {
    const { name, fence } = this.lock;
    try {
      await this.#locks.release(name, { fence: fence.toString() });
      return true;
    } catch (error) {
      if (hasCode(error, "FENCE_INVALID")) return false;
      throw error;
    }
  }
}
