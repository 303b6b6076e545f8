import type { LockStore } from "./lock.ts";

/** An open store: its locks, and one call that closes the store with everything it has. */
export interface OpenStore extends AsyncDisposable {
  readonly locks: LockStore;

  /** Closes the locks first, as `locks.close()` does: never rejects, and takes 2 s at the most. */
  close(): Promise<void>;
}

/** The parts as an open store. Its locks must close everything that was opened for the store. */
export function openStore<Parts extends { readonly locks: LockStore }>(
  parts: Parts,
): Parts & OpenStore {
  const close = () => parts.locks.close();
  return { ...parts, close, [Symbol.asyncDispose]: close };
}
