/** Does all of the items, at most `most` of them at a time, begun in their order. */
export async function someAtATime<T>(
  items: readonly T[],
  most: number,
  work: (item: T) => Promise<unknown>,
): Promise<void> {
  const rest = items.values();
  const doSome = async () => {
    for (const item of rest) await work(item);
  };
  await Promise.all(Array.from({ length: Math.min(most, items.length) }, doSome));
}
