import { after, type Millis } from "../../core/lock/time.ts";

/** Ends a wait early. A ring that nobody waits for is kept for the next wait. */
export class Bell {
  #isRung = false;
  #wake = () => {};

  ring(): void {
    this.#isRung = true;
    this.#wake();
  }

  /** Resolves when it is rung, and after `span` milliseconds at the latest. */
  async wait(span: Millis): Promise<void> {
    if (!this.#isRung) {
      await new Promise<void>((resolve) => {
        const cancel = after(span, resolve);
        this.#wake = () => {
          cancel();
          resolve();
        };
      });
    }
    this.#isRung = false;
    this.#wake = () => {};
  }
}
