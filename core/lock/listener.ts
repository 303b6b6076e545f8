/** A hook that only listens: what it throws, or rejects with, costs nobody anything. */
export function listener<Told extends readonly unknown[]>(
  hook: ((...told: Told) => unknown) | undefined,
): (...told: Told) => void {
  if (!hook) return () => {};
  return (...told) => void (async () => hook(...told))().catch(() => {});
}
