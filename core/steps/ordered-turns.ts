import { nextTurn } from "../lock/event-loop.ts";

/** Does work one at a time: of what waits after a turn of the event loop, that with the lowest position. */
export class OrderedTurns {
  readonly #waiting = new Map<number, () => void>();
  #isBusy = false;

  /** No two may wait with the same position. */
  async run<T>(position: number, work: () => Promise<T>): Promise<T> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.set(position, resolve);
    if (!this.#isBusy) void this.#next();
    await promise;
    try {
      return await work();
    } finally {
      void this.#next();
    }
  }

  async #next(): Promise<void> {
    this.#isBusy = true;
    await nextTurn();
    const first = Math.min(...this.#waiting.keys());
    const begin = this.#waiting.get(first);
    this.#waiting.delete(first);
    if (begin) begin();
    else this.#isBusy = false;
  }
}
