/** Locks and runs in the memory of one process, for tests. */

import type { Journal } from "../../journal/journal.ts";
import { type OpenStore, openLockStore } from "../../lock/open-store.ts";
import { checkOptionNames } from "../../lock/options.ts";
import type { StoreOptions } from "../../lock/store.ts";
import { STORE_OPTIONS } from "../options.ts";
import { memoryJournal } from "./journal.ts";
import { memoryLocks } from "./locks.ts";

export interface MemoryStore extends OpenStore {
  readonly journal: Journal;
}

/** Opens a new, empty store. It ends with the process. */
export async function openMemory(options: StoreOptions = {}): Promise<MemoryStore> {
  checkOptionNames("openMemory", options, STORE_OPTIONS);
  return openLockStore({ locks: memoryLocks(options), journal: memoryJournal() });
}
