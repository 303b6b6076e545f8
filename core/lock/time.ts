/** A span of time in milliseconds. */
export type Millis = number;

/** The longest wait for one answer of a store, and for all attempts to give a lock back. */
export const LONGEST_CALL: Millis = 10_000;

/** A point in time, by both clocks of this process. Compared only with later points of the same process. */
export interface Instant {
  readonly mono: number;
  readonly wall: number;
}

export function instant(): Instant {
  return { mono: performance.now(), wall: Date.now() };
}

/**
 * Milliseconds since `start`, by whichever clock says more.
 *
 * A frozen micro-VM may stop the monotonic clock and a time server may step the wall clock; the larger
 * of the two can only make us give up a lock too early, never hold on to it too long.
 */
export function elapsedSince(start: Instant): Millis {
  return Math.max(performance.now() - start.mono, Date.now() - start.wall);
}

/** How much of a function's invocation is left. */
export interface Deadline {
  /** Milliseconds until the invocation is cut off; 0 or less once it is. */
  remaining(): Millis;
}

/** A deadline `span` milliseconds from now, by both clocks. */
export function deadlineIn(span: Millis): Deadline {
  const start = instant();
  return { remaining: () => span - elapsedSince(start) };
}

/** The longest span a timer takes: 2^31 - 1 ms; anything above fires at once. */
const LONGEST_TIMER: Millis = 2 ** 31 - 1;

/**
 * Calls `fn` once after `span` milliseconds, unless the returned function is called first.
 *
 * `idle` timers do not keep the process alive on their own.
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
