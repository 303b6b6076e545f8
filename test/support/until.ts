/** Polls until the result of `check` is truthy, for `within` milliseconds at the most. */
export async function until<T>(
  check: () => Promise<T | undefined | false> | T | undefined | false,
  within = 120_000,
): Promise<T> {
  const giveUpAt = performance.now() + within;
  for (;;) {
    const found = await check();
    if (found) return found;
    if (performance.now() > giveUpAt) throw new Error(`not within ${within} ms`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

export function pause(millis: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, millis));
}

/** The longest step of a limit. */
const STEP = 50;

/**
 * Settles as the promise does, or rejects after `limit` milliseconds. The limit passes in steps of the event loop, so that
 * a pause of the whole process counts as one step.
 */
export async function within<T>(limit: number, promise: Promise<T>): Promise<T> {
  let isSettled = false;
  const late = async (): Promise<never> => {
    for (let left = limit; left > 0 && !isSettled; left -= STEP) await pause(Math.min(left, STEP));
    throw new Error(`not within ${limit} ms`);
  };
  try {
    return await Promise.race([promise, late()]);
  } finally {
    isSettled = true;
  }
}
