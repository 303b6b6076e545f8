import { race } from "../lock/abort.ts";

/** A number of places, first come first served. */
export class Places {
  readonly #waiting: (() => void)[] = [];
  #free: number;

  constructor(count: number) {
    this.#free = count;
  }

  /** Resolves when there is a place, to be given back by `leave`; rejects with the signal's reason instead. */
  async enter(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#free > 0) {
      this.#free -= 1;
      return;
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push(resolve);
    try {
      await race(promise, signal);
    } catch (reason) {
      this.#giveUp(resolve);
      throw reason;
    }
  }

  leave(): void {
    const next = this.#waiting.shift();
    if (next) next();
    else this.#free += 1;
  }

  /** Its turn may have come just as the signal aborted. */
  #giveUp(waiting: () => void): void {
    const at = this.#waiting.indexOf(waiting);
    if (at >= 0) this.#waiting.splice(at, 1);
    else this.leave();
  }
}
