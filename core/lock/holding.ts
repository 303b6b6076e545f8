import type { Hold } from "./backend.ts";
import { isLoss, LockLostError, type LossReason } from "./errors.ts";
import type { LockListener } from "./events.ts";
import type { Fence } from "./fence.ts";
import type { Lock, LockSet, Unlocked } from "./lock.ts";
import { elapsedSince, instant, type Millis } from "./time.ts";

/** One name or several, held: a Lock on the first of them, a LockSet on all. */
export class Holding implements Lock, LockSet {
  readonly name: string;
  readonly fence: Fence;
  readonly names: readonly string[];
  readonly fences: ReadonlyMap<string, Fence>;
  readonly #hold: Hold;
  readonly #notify: LockListener;
  readonly #leave: () => void;
  readonly #since = instant();
  #unlocking: Promise<Unlocked> | undefined;

  /** `leave` gives up the places in the local lines. */
  constructor(names: readonly string[], hold: Hold, notify: LockListener, leave: () => void) {
    const [name] = names;
    const [fence] = hold.fences;
    if (name === undefined || fence === undefined)
      throw new TypeError("a hold has a name and a fence");
    this.name = name;
    this.fence = fence;
    this.names = names;
    this.fences = new Map(hold.fences.map((each) => [each.resource, each]));
    this.#hold = hold;
    this.#notify = notify;
    this.#leave = leave;
    // Once the lock is lost, others of this client may compete for it while the old body still runs.
    hold.life.onEnd((why) => isLoss(why) && leave());
  }

  get signal(): AbortSignal {
    return this.#hold.life.signal;
  }

  /** How the lock was lost; undefined while it is held and once it was given back. */
  get loss(): LockLostError | undefined {
    const { ended } = this.#hold.life;
    return ended && isLoss(ended) ? this.signal.reason : undefined;
  }

  assertHeld(spare: Millis = 0): void {
    this.#hold.life.assertHeld(spare);
  }

  ensure(span: Millis): Promise<void> {
    return this.#hold.life.ensure(span);
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
      // After a freeze, nobody may have noticed yet that the time is over.
      this.#hold.life.notice();
      const answer = await this.#hold.release(why);
      if (answer === "was-lost" && !this.loss) {
        this.#notify({ type: "lost", names, why: "taken" });
      }
      this.#notify({ type: "released", names, answer, held: held() });
      return answer;
    } catch (error) {
      this.#notify({ type: "release-failed", names, error, held: held() });
      throw error;
    } finally {
      this.#leave();
    }
  }
}

/** How the lock was lost; undefined while it is held and once it was given back. */
export function lossOf({ signal }: Lock): LockLostError | undefined {
  const { reason } = signal;
  return reason instanceof LockLostError && isLoss(reason.why) ? reason : undefined;
}
