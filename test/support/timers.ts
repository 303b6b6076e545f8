import { afterEach, beforeEach, expect, onTestFinished, vi } from "vitest";

/** Runs each test of a file on a virtual clock. A test that leaves a timer behind fails. */
export function useVirtualClock(): void {
  beforeEach(() => {
    vi.useFakeTimers();
  });

  afterEach(() => {
    const timers = vi.getTimerCount();
    vi.restoreAllMocks();
    vi.useRealTimers();
    expect(timers).toBe(0);
  });
}

/** Runs the virtual clock until the promise has settled. */
export async function finish<T>(promise: Promise<T>): Promise<T> {
  let settled = false;
  const note = () => {
    settled = true;
  };
  promise.then(note, note);
  while (!settled) await vi.advanceTimersByTimeAsync(10);
  return promise;
}

/** The longest span of a timer. */
const NEVER = 2 ** 31 - 1;

/**
 * Keeps timers of `least` milliseconds and more from firing until the test has finished: what the test awaits does not
 * depend on them. Returns a function that lets later timers fire again. Not for concurrent tests.
 */
export function stopTimers(least: number): () => void {
  const { setTimeout } = globalThis;
  const stopping = ((run: () => void, millis = 0, ...args: []) =>
    setTimeout(run, millis < least ? millis : NEVER, ...args)) as typeof setTimeout;
  const spy = vi.spyOn(globalThis, "setTimeout").mockImplementation(stopping);
  const start = () => spy.mockRestore();
  onTestFinished(start);
  return start;
}
