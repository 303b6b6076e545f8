/** Returns a function that calls the hook, and ignores its errors and rejections. */
export function listener<Arguments extends readonly unknown[]>(
  hook: ((...given: Arguments) => unknown) | undefined,
): (...given: Arguments) => void {
  if (!hook) return () => {};
  return (...given) => void (async () => hook(...given))().catch(() => {});
}
