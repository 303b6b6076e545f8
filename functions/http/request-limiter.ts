import { tooManyRequests } from "./problem.ts";

/** Bounds the concurrent requests. A refused client holds no resources while it backs off; a waiting one would. */
export class RequestLimiter {
  readonly #requests: number;
  readonly #perKey: number;
  readonly #active = new Map<string, number>();
  #total = 0;

  constructor(requests: number, perKey: number) {
    this.#requests = requests;
    this.#perKey = perKey;
  }

  /** Counts the request until disposed. Throws a Problem when a limit is reached. */
  enter(key: string): Disposable {
    const active = this.#active.get(key) ?? 0;
    if (this.#total >= this.#requests) throw tooManyRequests("this server");
    if (active >= this.#perKey) throw tooManyRequests("this resource");
    this.#total += 1;
    this.#active.set(key, active + 1);
    return { [Symbol.dispose]: () => this.#leave(key) };
  }

  #leave(key: string): void {
    this.#total -= 1;
    const left = (this.#active.get(key) ?? 1) - 1;
    if (left === 0) this.#active.delete(key);
    else this.#active.set(key, left);
  }
}
