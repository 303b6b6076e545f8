/** A span of time in milliseconds. */
export type Millis = number;

/** The longest wait for one answer of a store, and for all attempts to release a lock. */
export const LONGEST_CALL: Millis = 10_000;

/** A point in time by both clocks of this process. Comparable only within the process. */
export interface Instant {
  readonly mono: number;
  readonly wall: number;
}

/** Returns a random span, from a half of the given one to one and a half: processes that wait do not ask all at once. */
export function jittered(span: Millis): Millis {
  return span * (0.5 + Math.random());
}

export function instant(): Instant {
  return { mono: performance.now(), wall: Date.now() };
}

/**
 * Returns the milliseconds from `start` until `now`, by the clock that has advanced more.
 *
 * A frozen micro-VM may stop the monotonic clock, and a time server may step the wall clock. With the larger span a lock
 * may be given up too early, and is never kept too long.
 */
export function elapsedSince(start: Instant, now: Instant = instant()): Millis {
  return Math.max(now.mono - start.mono, now.wall - start.wall);
}

/**
 * The time that is left for several attempts. A stall or a freeze of this process costs no more than the attempt that it
 * hits: the server is asked again after it.
 */
export class Patience {
  #left: Millis;

  constructor(span: Millis) {
    this.#left = span;
  }

  /** 0 when the time is over. */
  get left(): Millis {
    return Math.max(0, this.#left);
  }

  /** Takes the time of an attempt, which lasts no longer than `span` while the process runs. */
  async during<T>(span: Millis, attempt: () => Promise<T>): Promise<T> {
    const startedAt = instant();
    try {
      return await attempt();
    } finally {
      this.take(Math.min(span, elapsedSince(startedAt)));
    }
  }

  take(span: Millis): void {
    this.#left -= span;
  }
}

/** The end of a function's invocation. */
export interface Deadline {
  /** Returns the milliseconds until the invocation is cut off; 0 or less after that. */
  remaining(): Millis;
}

/** The longest span of a timer: with more than 2^31 - 1 ms it fires at once. */
const LONGEST_TIMER: Millis = 2 ** 31 - 1;

/**
 * Calls `fn` once after `span` milliseconds, unless the returned function is called first.
 *
 * An `idle` timer does not keep the process alive.
 */
export function after(
  span: Millis,
  fn: () => void,
  { idle = false }: { readonly idle?: boolean } = {},
): () => void {
  const timer: unknown = setTimeout(fn, Math.min(Math.max(0, span), LONGEST_TIMER));
  if (idle) (timer as { unref?: () => void }).unref?.();
  return () => clearTimeout(timer as number);
}

/** Keeps the process alive until the returned function is called. */
export function keepProcessAlive(): () => void {
  const timer = setInterval(() => {}, LONGEST_TIMER);
  return () => clearInterval(timer);
}

/**
 * Calls `fn` like `after`, one turn of the event loop later.
 *
 * After a stall or a freeze, timers come before the answers that have arrived meanwhile: these get a turn.
 */
export function afterAnswers(span: Millis, fn: () => void): () => void {
  let cancel = after(span, () => {
    cancel = after(0, fn);
  });
  return () => cancel();
}
