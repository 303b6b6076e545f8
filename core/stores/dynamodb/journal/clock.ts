import { elapsedSince, type Instant, instant, type Millis } from "../../../lock/time.ts";

/**
 * The table's clock, as far as its answers tell it: they carry the server's time in whole seconds.
 *
 * This process's clock counts while it agrees with them. Otherwise the nearest time that the last answer allows.
 */
export class TableClock {
  #last: { readonly time: number; readonly sentAt: Millis; readonly cameAt: Instant } | undefined;

  /** Notes an answer to a request that was sent at `sentAt` of the monotonic clock. */
  see(time: number, sentAt: Millis): void {
    if (!Number.isNaN(time)) this.#last = { time, sentAt, cameAt: instant() };
  }

  /** Returns milliseconds since 1970. */
  now(): number {
    const own = Date.now();
    if (this.#last === undefined) return own;
    const { time, sentAt, cameAt } = this.#last;
    const earliest = time + performance.now() - cameAt.mono;
    const latest = time + 1_000 + performance.now() - sentAt;
    return Math.floor(Math.min(Math.max(own, earliest), latest));
  }

  /** Whether an answer has come within the last half minute: a frozen process does not know how long it was frozen. */
  get isFresh(): boolean {
    return this.#last !== undefined && elapsedSince(this.#last.cameAt) < 30_000;
  }
}
