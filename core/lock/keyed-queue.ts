import { TooManyWaitersError } from "./errors.ts";

/**
 * One queue per name within a client, first come first served.
 *
 * Keeps a client from competing with itself for a lock: only the first waiter of each name sends requests.
 */
export class KeyedQueue {
  readonly #limit: number;
  readonly #queues = new Map<string, (() => void)[]>();
  #waiting = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Enters the queue if it is empty. */
  tryEnter(name: string): boolean {
    if (this.#queues.has(name)) return false;
    this.#queues.set(name, []);
    return true;
  }

  /** Waits for the turn. Rejects with the signal's reason, and leaves the queue, when the signal aborts. */
  enter(name: string, signal: AbortSignal): Promise<void> {
    const queue = this.#queues.get(name);
    if (queue === undefined) {
      this.tryEnter(name);
      return Promise.resolve();
    }
    if (this.#waiting >= this.#limit) return Promise.reject(new TooManyWaitersError(this.#limit));
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason);
      const turn = () => {
        this.#waiting -= 1;
        signal.removeEventListener("abort", onAbort);
        resolve();
      };
      const onAbort = () => {
        this.#waiting -= 1;
        queue.splice(queue.indexOf(turn), 1);
        reject(signal.reason);
      };
      this.#waiting += 1;
      queue.push(turn);
      signal.addEventListener("abort", onAbort, { once: true });
    });
  }

  /** Gives the turn to the next waiter. */
  leave(name: string): void {
    const next = this.#queues.get(name)?.shift();
    if (next === undefined) this.#queues.delete(name);
    else next();
  }

  waiting(name: string): number {
    return this.#queues.get(name)?.length ?? 0;
  }
}
