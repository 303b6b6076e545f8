/** Calls `work` for all items, at most `limit` at a time, and starts them in their order. */
export async function mapConcurrent<T>(
  items: readonly T[],
  limit: number,
  work: (item: T) => Promise<unknown>,
): Promise<void> {
  const remaining = items.values();
  const runWorker = async () => {
    for (const item of remaining) await work(item);
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, runWorker));
}
