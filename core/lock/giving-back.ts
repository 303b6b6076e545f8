import type { LossReason } from "./errors.ts";
import type { Life } from "./life.ts";
import type { Unlocked } from "./lock.ts";
import type { Millis } from "./time.ts";

/** How a hold that hangs on something lent is given back: at the end of its life, since what was lent may live on. */
export class GivingBack {
  readonly #life: Life;
  readonly #drop: (ours: Millis) => Promise<boolean>;
  #dropping: Promise<boolean> | undefined;

  /** `drop` leaves what is ours for so many milliseconds more, and resolves to whether it was. */
  constructor(life: Life, drop: (ours: Millis) => Promise<boolean>) {
    this.#life = life;
    this.#drop = drop;
    life.onEnd(() => this.#once(0).catch(() => {}));
  }

  get hasBegun(): boolean {
    return this.#dropping !== undefined;
  }

  async release(why: LossReason): Promise<Unlocked> {
    const left = this.#life.remaining();
    const dropping = this.#once(left);
    this.#life.end(why);
    return (await dropping) && left > 0 ? "released" : "was-lost";
  }

  /** Again only after it has failed. */
  #once(ours: Millis): Promise<boolean> {
    this.#dropping ??= this.#drop(ours).catch((error) => {
      this.#dropping = undefined;
      throw error;
    });
    return this.#dropping;
  }
}
