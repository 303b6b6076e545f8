import { race } from "../lock/abort.ts";

/** Admits `count` callers at a time, in the order of their calls. */
export class Semaphore {
  readonly #waiters: (() => void)[] = [];
  #free: number;

  constructor(count: number) {
    this.#free = count;
  }

  /** Takes a permit, which `release` returns. Rejects with the signal's reason when the signal aborts first. */
  async acquire(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#free > 0) {
      this.#free -= 1;
      return;
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiters.push(resolve);
    try {
      await race(promise, signal);
    } catch (reason) {
      const at = this.#waiters.indexOf(resolve);
      if (at >= 0) this.#waiters.splice(at, 1);
      // The permit arrived just as the signal aborted.
      else this.release();
      throw reason;
    }
  }

  release(): void {
    const next = this.#waiters.shift();
    if (next) next();
    else this.#free += 1;
  }
}
