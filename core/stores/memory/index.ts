/** Locks and runs in the memory of one process, for tests. */

import type { Journal } from "../../journal/journal.ts";
import { StoreClosedError } from "../../lock/errors.ts";
import { type OpenStore, openLockStore } from "../../lock/open-store.ts";
import { checkOptionNames } from "../../lock/options.ts";
import { pollingStore, type StoreOptions } from "../../lock/store.ts";
import { STORE_OPTIONS } from "../options.ts";
import { memoryJournal } from "./journal.ts";
import { memoryClaims, newMemory } from "./locks.ts";

export interface MemoryStore extends OpenStore {
  readonly journal: Journal;
}

/** Opens a new, empty store. It ends with the process. */
export async function openMemory(options: StoreOptions = {}): Promise<MemoryStore> {
  checkOptionNames("openMemory", options, STORE_OPTIONS);
  let isClosed = false;
  const close = async () => {
    isClosed = true;
  };
  const checkOpen = () => {
    if (isClosed) throw new StoreClosedError();
  };
  const locks = pollingStore({ ...memoryClaims(newMemory()), close }, options);
  const journal = memoryJournal();
  const { entities } = journal;
  return openLockStore({
    locks,
    journal: { ...guarded(journal, checkOpen), entities: entities && guarded(entities, checkOpen) },
  });
}

/** Calls `check` before each method, all of which are asynchronous. */
function guarded<T extends object>(parts: T, check: () => void): T {
  const guard = ([name, part]: readonly [string, unknown]) => {
    if (typeof part !== "function") return [name, part];
    const call = async (...args: readonly unknown[]) => {
      check();
      return part(...args);
    };
    return [name, call];
  };
  return Object.fromEntries(Object.entries(parts).map(guard)) as T;
}
