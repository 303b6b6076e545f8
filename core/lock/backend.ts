import type { LossReason } from "./errors.ts";
import type { LockListener } from "./events.ts";
import type { Fence } from "./fence.ts";
import type { HolderWork } from "./holder.ts";
import type { IncidentSlots } from "./incidents.ts";
import type { Lease } from "./lease.ts";
import type { LockInfo, StoreTraits, Unlocked } from "./lock.ts";
import type { Deadline, Millis } from "./time.ts";
import type { WakeUpChannel } from "./wake-ups.ts";

/** A validated request for all of `names`. */
export interface LockRequest {
  /** Sorted, without duplicates. */
  readonly names: readonly string[];
  readonly ttl: Millis;
  readonly renew: boolean;
  readonly maxHold: Millis;
  readonly lockDelay: Millis;

  /** How long to wait for other holders; 0 makes one attempt. */
  readonly wait: Millis;

  /** How long the caller waits for the outcome, also of a silent store; `signal` aborts soon after. */
  readonly patience: Millis;
  readonly deadline: Deadline | undefined;
  readonly work: HolderWork | undefined;
  readonly signal: AbortSignal;

  /** Undefined when nobody listens. */
  readonly notify: LockListener | undefined;
}

/** The held locks of one request. */
export interface Hold {
  /** In the order of the request's names. */
  readonly fences: readonly Fence[];
  readonly lease: Lease;

  /** Ends the lease, then removes the claim: owner-checked, repeated until the store answers or one ttl has passed. */
  release(why: LossReason): Promise<Unlocked>;

  /** Renews, and changes the value in what the holder says of itself. For stores that keep one record per lock. */
  proclaim?(value: string): Promise<void>;
}

/** A lock as it was read. */
export interface FoundLock {
  readonly info: LockInfo;

  /** Removes the holder that was found, and no later one. Resolves to false when it was gone. */
  drop(limit: AbortSignal): Promise<boolean>;
}

/** The contract of a store. Names and spans are valid, and one client has one request for a name at a time. */
export interface Backend {
  readonly traits: StoreTraits;

  /** For stores that carry wake-ups between clients. */
  readonly wakeUps?: WakeUpChannel | undefined;

  /** Where clients leave their incidents. */
  readonly incidents: IncidentSlots;

  /**
   * Resolves to undefined when other holders had one of the names for all of `wait`.
   *
   * After a rejection nothing is held: a claim of unknown outcome has been withdrawn. A claim that arrives after its
   * withdrawal may keep the name taken for one ttl. Rejects with the signal's reason when the signal aborts. If the
   * backend takes much longer, the caller gets an UnknownOutcomeError, and a hold that comes late is released.
   */
  acquire(request: LockRequest): Promise<Hold | undefined>;

  /** Resolves once the lock has no holder. Rejects with the signal's reason, and as a failed read does. */
  whenFree(name: string, signal: AbortSignal): Promise<void>;

  /** Reads a lock, for a removal of the holder that was found. */
  find(name: string): Promise<FoundLock>;
  list(prefix: string): Promise<readonly LockInfo[]>;
  raiseGeneration(least: number): Promise<number>;
  close(): Promise<void>;
}
