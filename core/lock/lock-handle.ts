import type { Hold } from "./backend.ts";
import type { Duration } from "./duration.ts";
import { isLoss, LockLostError, type LossReason } from "./errors.ts";
import type { LockListener } from "./events.ts";
import type { Fence } from "./fence.ts";
import type { Lock, LockSet, Unlocked } from "./lock.ts";
import { elapsedSince, instant, type Millis } from "./time.ts";

/** The longest time for `ensure`: for a renewal that is under way, and for one of its own. */
const LONGEST_ENSURE: Millis = 2_000;

/**
 * Settles as the call does, or rejects with an UnknownOutcomeError about `what` soon after `longest` or the caller's
 * deadline, whichever is sooner. The call goes on in the background.
 */
export type InTime = <T>(what: string, call: Promise<T>, longest?: Millis) => Promise<T>;

/** The handle of a hold: a Lock on the first name, a LockSet on all names. */
export class LockHandle implements Lock, LockSet {
  readonly name: string;
  readonly fence: Fence;
  readonly names: readonly string[];
  readonly #hold: Hold;

  /** Made on first use: most callers read `fence` alone. */
  #fences: ReadonlyMap<string, Fence> | undefined;
  readonly #notify: LockListener | undefined;
  readonly #inTime: InTime;
  readonly #leave: () => void;
  readonly #since = instant();
  #unlocking: Promise<Unlocked> | undefined;

  /** `leave` is called when the lock is lost or released. */
  constructor(
    names: readonly string[],
    hold: Hold,
    notify: LockListener | undefined,
    inTime: InTime,
    leave: () => void,
  ) {
    const [name] = names;
    const [fence] = hold.fences;
    if (name === undefined || fence === undefined)
      throw new TypeError("a hold has a name and a fence");
    this.name = name;
    this.fence = fence;
    this.names = names;
    this.#hold = hold;
    this.#notify = notify;
    this.#inTime = inTime;
    this.#leave = leave;
    hold.lease.onEnd((why) => isLoss(why) && leave());
  }

  get fences(): ReadonlyMap<string, Fence> {
    this.#fences ??= new Map(this.#hold.fences.map((each) => [each.resource, each]));
    return this.#fences;
  }

  get signal(): AbortSignal {
    return this.#hold.lease.signal;
  }

  /** The error of a lost lock; undefined while the lock is held, and after a release. */
  get loss(): LockLostError | undefined {
    const { ended } = this.#hold.lease;
    return ended && isLoss(ended) ? this.signal.reason : undefined;
  }

  assertHeld(spare: Duration = 0): void {
    this.#hold.lease.assertHeld(spare);
  }

  ensure(span: Duration): Promise<void> {
    return this.#inTime("renewed", this.#hold.lease.ensure(span), LONGEST_ENSURE);
  }

  async proclaim(value: string): Promise<void> {
    if (!this.#hold.proclaim) throw new TypeError("this store's locks have no value");
    await this.#hold.proclaim(value);
  }

  unlock(why: LossReason = "released"): Promise<Unlocked> {
    this.#unlocking ??= this.#unlockOnce(why);
    return this.#unlocking;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.unlock().catch(() => {});
  }

  async #unlockOnce(why: LossReason): Promise<Unlocked> {
    const { names } = this;
    const held = () => elapsedSince(this.#since);
    try {
      // After a freeze, the timer of the expiry may not have fired yet.
      this.#hold.lease.checkExpiry();
      const answer = await this.#inTime("released", this.#hold.release(why));
      if (answer === "was-lost" && !this.loss) {
        this.#notify?.({ type: "lost", names, why: "taken" });
      }
      this.#notify?.({ type: "released", names, answer, held: held() });
      return answer;
    } catch (error) {
      this.#notify?.({ type: "release-failed", names, error, held: held() });
      throw error;
    } finally {
      this.#leave();
    }
  }
}

/** The error of a lost lock; undefined while the lock is held, and after a release. */
export function lossOf({ signal }: Lock): LockLostError | undefined {
  const { reason } = signal;
  return reason instanceof LockLostError && isLoss(reason.why) ? reason : undefined;
}

/** Why the lock was released under its holder: its store was closed. Undefined otherwise. */
export function closureOf({ signal }: Pick<Lock, "signal">): LockLostError | undefined {
  const { reason } = signal;
  return reason instanceof LockLostError && reason.why === "closed" ? reason : undefined;
}

/** Whether the lock is provably held now: `assertHeld` as a boolean. */
export function isHeld(lock: Pick<Lock, "assertHeld">): boolean {
  try {
    lock.assertHeld();
    return true;
  } catch {
    return false;
  }
}
