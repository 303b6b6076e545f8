import { race } from "./abort.ts";
import { after, type Millis } from "./time.ts";

/** How often one looks even though nothing was told: a watch on a cut-off member stays silent. */
const LOOK_EVERY: Millis = 10_000;

/** Rung by any number of causes, heard once; and by itself from time to time. */
export class Bell {
  readonly #every: Millis;
  #rung = false;
  #hear = () => {};

  /** `every` is infinite where a watch cannot be lost without notice. */
  constructor(every: Millis = LOOK_EVERY) {
    this.#every = every;
  }

  ring(): void {
    this.#rung = true;
    this.#hear();
  }

  async rung(signal: AbortSignal): Promise<void> {
    if (!this.#rung) {
      const heard = new Promise<void>((resolve) => {
        this.#hear = resolve;
      });
      const span = this.#every * (0.5 + Math.random());
      const cancel = span < Infinity ? after(span, this.#hear, { idle: true }) : () => {};
      await race(heard, signal).finally(cancel);
    }
    this.#rung = false;
  }
}
