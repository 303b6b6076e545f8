import { TooManyWaitersError } from "./errors.ts";

/**
 * One line per name within this client, first come first served.
 *
 * It keeps one client from taking its own lock twice, and lets only one of its waiters ask the store.
 */
export class Line {
  readonly #limit: number;
  readonly #lines = new Map<string, (() => void)[]>();
  #waiting = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Enters if nobody of this client is there. */
  tryEnter(name: string): boolean {
    if (this.#lines.has(name)) return false;
    this.#lines.set(name, []);
    return true;
  }

  /** Waits for its turn; rejects with the signal's reason and leaves the line when that aborts. */
  enter(name: string, signal: AbortSignal): Promise<void> {
    const line = this.#lines.get(name);
    if (line === undefined) {
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
        line.splice(line.indexOf(turn), 1);
        reject(signal.reason);
      };
      this.#waiting += 1;
      line.push(turn);
      signal.addEventListener("abort", onAbort, { once: true });
    });
  }

  /** Lets the next one in. */
  leave(name: string): void {
    const next = this.#lines.get(name)?.shift();
    if (next === undefined) this.#lines.delete(name);
    else next();
  }

  waiting(name: string): number {
    return this.#lines.get(name)?.length ?? 0;
  }
}
