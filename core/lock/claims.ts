import type { LockRecord } from "./holder.ts";
import type { StoreTraits } from "./lock.ts";
import type { Millis } from "./time.ts";
import type { WakeUpChannel } from "./wake-ups.ts";

/** The numbers of a fence: the place of a claim in the order of all claims on its name. */
export interface Token {
  readonly generation: number;
  readonly token: bigint;
}

/**
 * A store that keeps one record per lock: three compare-and-set writes. `pollingStore` turns them into a LockStore.
 *
 * Each write changes all of `names` or none. Rejects with a StoreUnavailableError or StoreRefusedError only when the
 * write has certainly not been executed. Gives up when `signal` aborts; the write may still be executed later.
 */
export interface Claims {
  readonly traits: StoreTraits;

  /** For stores that carry wake-ups between clients. */
  readonly wakeUps?: WakeUpChannel;

  /**
   * Claims names that are free, expired, or this owner's already, and then never brings the expiry forward. Resolves to
   * tokens in the order of `names`, or to undefined when another owner has one of the names.
   */
  claim(claim: Claim, signal: AbortSignal): Promise<readonly Token[] | undefined>;

  /**
   * Moves the owner's expiry to `ttl` from now, never back. False: another owner's, or expired.
   *
   * `next` is the owner's new text, with the same id. The new text replaces the old one, if no earlier request has done so.
   */
  renew(
    names: readonly string[],
    owner: string,
    ttl: Millis,
    signal: AbortSignal,
    next?: string,
  ): Promise<boolean>;

  /** Removes the owner's claim. False: another owner's, or expired. */
  drop(names: readonly string[], owner: string, signal: AbortSignal): Promise<boolean>;

  /**
   * Resolves to the milliseconds until all of `names` are free unless renewed; 0 when they are free.
   *
   * A read that blocks no other client. Rejects with a StoreUnavailableError when its answer was lost.
   */
  freeIn(names: readonly string[], signal: AbortSignal): Promise<Millis>;

  /** For stores that notify waiters of a release: returns how to wait for `names`. Other stores are polled by `freeIn`. */
  waitForTurn?(names: readonly string[], owner: string): WaitForTurn;

  /**
   * For stores that publish releases: calls `listener` after the release of a lock that `freeIn` has found held, and when
   * one may have been missed.
   */
  onRelease?(name: string, listener: () => void): ReleaseSubscription;

  inspect(name: string): Promise<LockRecord>;
  list(prefix: string): Promise<readonly LockRecord[]>;
  raiseGeneration(least: number): Promise<number>;
  close(): Promise<void>;
}

export interface ReleaseSubscription {
  /** Whether releases are published to this client at the moment. */
  readonly isActive: boolean;
  stop(): void;
}

export interface Claim {
  readonly names: readonly string[];
  readonly owner: string;
  readonly ttl: Millis;
  readonly lockDelay: Millis;
}

/**
 * Waits until a claim may succeed, for `left` milliseconds at the most.
 *
 * Rejects with the signal's reason when the signal aborts, and as `freeIn` does. Once it has settled, no queue has an
 * entry of the caller.
 */
export type WaitForTurn = (left: Millis, signal: AbortSignal) => Promise<void>;
