import type { LossReason } from "./errors.ts";
import type { LockListener } from "./events.ts";
import type { Fence } from "./fence.ts";
import type { Life } from "./life.ts";
import type { LockInfo, StoreTraits, Unlocked } from "./lock.ts";
import type { Millis } from "./time.ts";

/** A checked request for all of `names`. */
export interface LockRequest {
  /** Sorted, each once. */
  readonly names: readonly string[];
  readonly ttl: Millis;
  readonly renew: boolean;
  readonly maxHold: Millis;
  readonly lockDelay: Millis;

  /** How long to wait for others; 0 tries once. */
  readonly wait: Millis;
  readonly signal: AbortSignal;
  readonly notify: LockListener;
}

/** All of a request's names, held. */
export interface Hold {
  /** In the order of the request's names. */
  readonly fences: readonly Fence[];
  readonly life: Life;

  /** Ends the life, then removes the claim: owner-checked, repeated until the store answers or one ttl passed. */
  release(why: LossReason): Promise<Unlocked>;
}

/** What a store implements. Names and spans are checked already, and no name is asked for twice at a time. */
export interface Backend {
  readonly traits: StoreTraits;

  /**
   * Resolves to undefined when others held one of the names for all of `wait`.
   *
   * When it rejects, nothing is held: a claim of unknown outcome has been withdrawn. One that arrives later than
   * its withdrawal may keep the name taken for one ttl. It rejects with the signal's reason when that aborts.
   */
  acquire(request: LockRequest): Promise<Hold | undefined>;

  inspect(name: string): Promise<LockInfo>;
  list(prefix: string): Promise<readonly LockInfo[]>;
  raiseGeneration(least: number): Promise<number>;
  close(): Promise<void>;
}
