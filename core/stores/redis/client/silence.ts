import { nextTurn } from "../../../lock/event-loop.ts";
import { after, type Instant, instant, type Millis } from "../../../lock/time.ts";

/**
 * Notices that a connection is silent for `timeout` while an answer is due.
 *
 * One timer serves all commands of such a span: a timer for each would cost more than the rest of the command.
 */
export class Silence {
  readonly #timeout: Millis;
  readonly #onSilence: () => void;
  #heardAt = instant();
  #due = 0;

  /** Since when an answer has been due all the time, by the monotonic clock. */
  #dueSince = 0;
  #isWatched = false;

  constructor(timeout: Millis, onSilence: () => void) {
    this.#timeout = timeout;
    this.#onSilence = onSilence;
  }

  /** When the last data of the server arrived. */
  get heardAt(): Instant {
    return this.#heardAt;
  }

  /** Data have arrived. */
  heard(): void {
    this.#heardAt = instant();
  }

  /** Waits for an answer. */
  async until<T>(answer: Promise<T>): Promise<T> {
    if (this.#due === 0) this.#dueSince = performance.now();
    this.#due += 1;
    if (!this.#isWatched) this.#watch(this.#timeout);
    try {
      return await answer;
    } finally {
      this.#due -= 1;
    }
  }

  #watch(span: Millis): void {
    this.#isWatched = true;
    after(span, () => void this.#check(), { idle: true });
  }

  async #check(): Promise<void> {
    // Answers that have arrived while this process was busy get a turn.
    if (this.#left() <= 0) await nextTurn();
    this.#isWatched = false;
    if (this.#due === 0) return;
    const left = this.#left();
    if (left > 0) this.#watch(left);
    else this.#onSilence();
  }

  #left(): Millis {
    return this.#timeout - (performance.now() - Math.max(this.#heardAt.mono, this.#dueSince));
  }
}
