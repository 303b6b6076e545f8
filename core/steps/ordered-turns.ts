import { eventually, nextTurn } from "../lock/event-loop.ts";
import type { Millis } from "../lock/time.ts";

interface Waiting {
  readonly position: number;
  begin(): void;
}

interface OrderOptions {
  /** How long the next item may take to arrive. Later items are awaited no more. */
  patience(): Millis;
  readonly signal: AbortSignal;
}

/** Does work one at a time, in the order of its positions: code that awaits something of its own arrives late. */
export class OrderedTurns {
  /** From the first to the last. */
  readonly #expected: number[];
  readonly #options: OrderOptions;

  /** From the last to the first. */
  readonly #waiting: Waiting[] = [];
  #isBusy = false;

  /** Expects work with these positions, each once. */
  constructor(positions: readonly number[], options: OrderOptions) {
    this.#expected = positions.toSorted((a, b) => a - b);
    this.#options = options;
  }

  async run<T>(position: number, work: () => Promise<T>): Promise<T> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const at = this.#waiting.findIndex((other) => other.position < position);
    this.#waiting.splice(at < 0 ? this.#waiting.length : at, 0, { position, begin: resolve });
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
    if (this.#waiting.length > 0 && !this.#isNextHere) {
      const { patience, signal } = this.#options;
      await eventually(() => this.#isNextHere, patience(), signal);
    }
    const first = this.#waiting.pop();
    if (first === undefined) {
      this.#isBusy = false;
      return;
    }
    while ((this.#expected[0] ?? Number.POSITIVE_INFINITY) <= first.position)
      this.#expected.shift();
    first.begin();
  }

  get #isNextHere(): boolean {
    const [next = Number.POSITIVE_INFINITY] = this.#expected;
    return (this.#waiting.at(-1)?.position ?? Number.POSITIVE_INFINITY) <= next;
  }
}
