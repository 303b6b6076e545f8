/** A span of time in milliseconds. */
export type Millis = number;

/** The longest wait for one answer of a store, and for all attempts to release a lock. */
export const LONGEST_CALL: Millis = 10_000;

/** A point in time by both clocks of this process. Comparable only within the process. */
export interface Instant {
  readonly mono: number;
  readonly wall: number;
}

export function instant(): Instant {
  return { mono: performance.now(), wall: Date.now() };
}

/**
 * Returns the milliseconds since `start`, by the clock that has advanced more.
 *
 * A frozen micro-VM may stop the monotonic clock, and a time server may step the wall clock. With the larger span a lock
 * may be given up too early, and is never kept too long.
 */
export function elapsedSince(start: Instant): Millis {
  return Math.max(performance.now() - start.mono, Date.now() - start.wall);
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
