/** What a handler works with, or a function that opens it: called by every invocation, so see `lazily`. */
export type Source<T extends object> = T | (() => T | Promise<T>);

export async function from<T extends object>(source: Source<T>): Promise<T> {
  return typeof source === "function" ? source() : source;
}

/**
 * Opens once, at the first invocation, and keeps that for the next ones. What failed to open is tried again.
 *
 *     const opened = lazily(() => open(url));
 */
export function lazily<T>(open: () => Promise<T>): () => Promise<T> {
  let opening: Promise<T> | undefined;
  return () => {
    opening ??= open().catch((error) => {
      opening = undefined;
      throw error;
    });
    return opening;
  };
}
