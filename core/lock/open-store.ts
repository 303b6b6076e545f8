import type { Elections } from "./election.ts";
import type { LockStore } from "./lock.ts";
import { lockElections } from "./lock-election.ts";

/** An open store: its locks, and one call that closes the store with everything it has. */
export interface OpenStore extends AsyncDisposable {
  readonly locks: LockStore;
  readonly elections: Elections;

  /** Closes the locks first, as `locks.close()` does: never rejects, and takes 2 s at the most. */
  close(): Promise<void>;
}

/** The parts as an open store. Its locks must close everything that was opened for the store. */
export function openStore<Parts extends Pick<OpenStore, "locks" | "elections">>(
  parts: Parts,
): Parts & OpenStore {
  const close = () => parts.locks.close();
  return { ...parts, close, [Symbol.asyncDispose]: close };
}

/** The same for a store whose elections are over its locks. */
export function openLockStore<Parts extends Pick<OpenStore, "locks">>(
  parts: Parts,
): Parts & OpenStore {
  return openStore({ ...parts, elections: lockElections(parts.locks) });
}
