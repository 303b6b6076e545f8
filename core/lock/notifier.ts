import { race } from "./abort.ts";
import { after, type Millis } from "./time.ts";

interface NoticeWait {
  /** The longest wait. Default: infinite. */
  readonly span?: Millis;
  readonly signal?: AbortSignal | undefined;

  /** The timer of `span` does not keep the process alive. Default false. */
  readonly idle?: boolean;
}

/** Ends the wait of one waiter. A notification that comes between two waits is kept; several count as one. */
export class Notifier {
  #isNotified = false;
  #wake = () => {};

  notify(): void {
    this.#isNotified = true;
    this.#wake();
  }

  /** Resolves to whether a notification came within `span`. Rejects with the signal's reason if it aborts first. */
  async wait({
    span = Number.POSITIVE_INFINITY,
    signal,
    idle = false,
  }: NoticeWait = {}): Promise<boolean> {
    if (!this.#isNotified) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      const cancel = span < Number.POSITIVE_INFINITY ? after(span, resolve, { idle }) : () => {};
      await (signal ? race(promise, signal) : promise).finally(cancel);
    }
    const wasNotified = this.#isNotified;
    this.#isNotified = false;
    return wasNotified;
  }
}
