import { HIGHEST_GENERATION, noMoreGenerations } from "../../lock/checks.ts";
import type { Claims, Token } from "../../lock/claims.ts";
import { formatFence } from "../../lock/fence.ts";
import type { LockRecord } from "../../lock/holder.ts";
import type { LockStore, StoreTraits } from "../../lock/lock.ts";
import { pollingStore, type StoreOptions } from "../../lock/store.ts";
import type { Millis } from "../../lock/time.ts";

/** The state of a memory store, which its clients share like a server. */
export interface Memory {
  readonly locks: Map<string, MemoryLock>;

  /** The last token of each name; outlives the locks. */
  readonly tokens: Map<string, bigint>;
  generation: number;
}

interface MemoryLock {
  readonly owner: string;
  readonly expiresAt: Millis;
  readonly lockDelay: Millis;
}

export interface MemoryStoreOptions extends StoreOptions {
  readonly memory?: Memory;
}

export function newMemory(): Memory {
  return { locks: new Map(), tokens: new Map(), generation: 0 };
}

/** Makes a store of locks within one process: the reference implementation. */
export function memoryLocks({
  memory = newMemory(),
  ...options
}: MemoryStoreOptions = {}): LockStore {
  return pollingStore(memoryClaims(memory), options);
}

const traits: StoreTraits = {
  name: "memory",
  fair: false,
  watches: false,
  serverClock: true,
  shared: false,
  lockDelay: true,
  minTtl: 10,
};

/** Makes the compare-and-set writes of a memory store. */
export function memoryClaims(memory: Memory): Claims {
  const { locks } = memory;
  const now = () => performance.now();
  const isOurs = (name: string, owner: string) => {
    const row = locks.get(name);
    return row?.owner === owner && row.expiresAt > now();
  };
  const freeIn = (name: string) => {
    const row = locks.get(name);
    return row ? Math.max(0, row.expiresAt + row.lockDelay - now()) : 0;
  };
  return {
    traits,
    async claim({ names, owner, ttl, lockDelay }) {
      if (names.some((name) => freeIn(name) > 0)) return undefined;
      return names.map((name) => take(memory, name, { owner, expiresAt: now() + ttl, lockDelay }));
    },
    async renew(names, owner, ttl, _, next = owner) {
      if (!names.every((name) => isOurs(name, owner) || isOurs(name, next))) return false;
      for (const name of names) {
        const row = locks.get(name) as MemoryLock;
        const expiresAt = Math.max(row.expiresAt, now() + ttl);
        locks.set(name, { ...row, owner: next, expiresAt });
      }
      return true;
    },
    async drop(names, owner) {
      const ours = names.filter((name) => isOurs(name, owner));
      for (const name of ours) locks.delete(name);
      return ours.length === names.length;
    },
    freeIn: async (names) => Math.max(...names.map(freeIn)),
    inspect: async (name) => describe(memory, name, now()),
    list: async (prefix) =>
      [...locks.keys()]
        .filter((name) => name.startsWith(prefix))
        .map((name) => describe(memory, name, now()))
        .filter((info) => info.holder !== undefined)
        .sort((a, b) => (a.name < b.name ? -1 : 1)),
    async raiseGeneration(least) {
      if (memory.generation >= HIGHEST_GENERATION) throw noMoreGenerations();
      memory.generation = Math.max(memory.generation + 1, least);
      return memory.generation;
    },
    close: async () => {},
  };
}

function take(memory: Memory, name: string, row: MemoryLock): Token {
  const token = (memory.tokens.get(name) ?? 0n) + 1n;
  memory.tokens.set(name, token);
  memory.locks.set(name, row);
  return { generation: memory.generation, token };
}

function describe(memory: Memory, name: string, now: Millis): LockRecord {
  const row = memory.locks.get(name);
  const token = memory.tokens.get(name);
  const held = row !== undefined && row.expiresAt > now;
  return {
    name,
    holder: held ? row.owner : undefined,
    expiresIn: held ? row.expiresAt - now : undefined,
    fence: token === undefined ? undefined : formatFence(memory.generation, token),
    waiters: 0,
  };
}
