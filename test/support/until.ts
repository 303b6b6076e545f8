/** Polls until `check` gives something, for `within` milliseconds at the most. */
export async function until<T>(
  check: () => Promise<T | undefined | false> | T | undefined | false,
  within = 10_000,
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

/** The promise's outcome, which has to come within `limit` milliseconds. */
export async function within<T>(limit: number, promise: Promise<T>): Promise<T> {
  const late = pause(limit).then(() => {
    throw new Error(`not within ${limit} ms`);
  });
  return Promise.race([promise, late]);
}
