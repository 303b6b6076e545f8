import { sleep } from "../../core/lock/abort.ts";
import { releaseUntilKnown, withinAttempt } from "../../core/lock/attempts.ts";
import { StoreUnavailableError } from "../../core/lock/errors.ts";
import { issueFence } from "../../core/lock/fence.ts";
import type { LeaseGrant } from "../../core/lock/lease.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { SessionPool, type StoreSession } from "../../core/lock/session-pool.ts";
import {
  type LockQueues,
  type QueueEntry,
  sessionQueueBackend,
} from "../../core/lock/session-queue.ts";
import { lockStore } from "../../core/lock/store.ts";
import { after, instant, type Millis } from "../../core/lock/time.ts";
import { memoryClaims, newMemory } from "../../core/stores/memory/locks.ts";

/** A session of the memory, by its clock. */
interface MemorySession {
  expiresAt: Millis;
}

interface MemoryEntry {
  readonly names: readonly string[];
  readonly token: bigint;
  session: MemorySession;
}

/** Queues of one process, which their clients share like a server. */
export class QueueMemory {
  #entries: readonly MemoryEntry[] = [];
  #tokens = 0n;

  /** The entries whose sessions live, the oldest first. */
  get entries(): readonly MemoryEntry[] {
    this.#entries = this.#entries.filter(({ session }) => session.expiresAt > performance.now());
    return this.#entries;
  }

  before({ names, token }: Pick<MemoryEntry, "names" | "token">): readonly MemoryEntry[] {
    return this.entries.filter(
      (other) => other.token < token && other.names.some((name) => names.includes(name)),
    );
  }

  enter(names: readonly string[], session: MemorySession): MemoryEntry {
    this.#tokens += 1n;
    const entry = { names, session, token: this.#tokens };
    this.#entries = [...this.#entries, entry];
    return entry;
  }

  leave(entry: MemoryEntry): boolean {
    const { entries } = this;
    this.#entries = entries.filter((other) => other !== entry);
    return entries.includes(entry);
  }
}

/** The requests of a client to its queues. */
export type QueueCall = "open" | "keepAlive" | "enter" | "look" | "leave" | "move";

/** Carries a request of a client. Resolves to its answer, or rejects after `signal` has aborted. */
export type Carry = <T>(
  call: QueueCall,
  work: () => Promise<T>,
  signal?: AbortSignal,
) => Promise<T>;

/** Makes a store of locks that stand in the queues of a memory. */
export function queueStore(memory: QueueMemory, carry: Carry): LockStore {
  return lockStore(sessionQueueBackend(queuesOf(memory, carry)));
}

function queuesOf(memory: QueueMemory, carry: Carry): LockQueues<LocalSession, LocalEntry> {
  const { traits } = memoryClaims(newMemory());
  const notHere = async () => {
    throw new TypeError("the queues of a memory have no such call");
  };
  return {
    traits,
    address: traits.name,
    sessions: new SessionPool({
      address: traits.name,
      unit: 1,
      open: async (ttl, signal) => {
        const session = new LocalSession(ttl, carry);
        await carry("open", () => session.start(), signal);
        session.keepAlive();
        return session;
      },
    }),
    async enter({ names, ttl, wait, patience, signal }, pooled) {
      let entry: LocalEntry | undefined;
      const write = async () => {
        const written = memory.enter(names, pooled.session.state);
        entry = new LocalEntry(memory, written, carry);
        return wait > 0 || memory.before(written).length === 0;
      };
      const withdraw = async () => entry === undefined || (await entry.leave());
      try {
        const send = (limit: AbortSignal) => carry("enter", write, limit);
        if (await withinAttempt(send, ttl, signal, patience)) return entry;
        await entry?.leave();
        return undefined;
      } catch (error) {
        pooled.retire();
        const drop = (limit: AbortSignal) => carry("leave", withdraw, limit);
        await releaseUntilKnown({ drop, store: traits.name, names, ttl, remaining: 0 });
        signal.throwIfAborted();
        throw new StoreUnavailableError(traits.name, "no answer to a lock request", error);
      }
    },
    fencesOf: ({ token }, names) => names.map((name) => issueFence(name, 0, token, String(token))),
    move: (entry, session, limit) => entry.move(session.state, limit),
    async cleanUp(entry) {
      await entry.leave();
      return true;
    },
    incidents: { read: notHere, write: notHere },
    whenFree: notHere,
    find: notHere,
    list: notHere,
    raiseGeneration: notHere,
    close: async () => {},
  };
}

class LocalSession implements StoreSession {
  readonly ttl: Millis;
  readonly state: MemorySession = { expiresAt: 0 };
  readonly #closed = new AbortController();
  readonly signal = this.#closed.signal;
  readonly #carry: Carry;
  granted: LeaseGrant;
  #stop = () => {};

  constructor(ttl: Millis, carry: Carry) {
    this.ttl = ttl;
    this.#carry = carry;
    this.granted = { ttl, sentAt: instant() };
  }

  /** Starts the whole ttl, in the memory. */
  async start(): Promise<void> {
    this.state.expiresAt = performance.now() + this.ttl;
  }

  keepAlive(): void {
    const next = () => {
      this.renew().catch(() => {});
      this.keepAlive();
    };
    this.#stop = after(this.ttl / 3, next, { idle: true });
  }

  remaining(): Millis {
    return this.state.expiresAt - performance.now();
  }

  async renew(signal?: AbortSignal): Promise<LeaseGrant> {
    const sentAt = instant();
    await this.#carry("keepAlive", () => this.start(), signal);
    this.granted = { ttl: this.ttl, sentAt };
    return this.granted;
  }

  restart(signal: AbortSignal): Promise<LeaseGrant> {
    return this.renew(signal);
  }

  stopKeepAlive(): void {
    this.#stop();
  }

  async close(): Promise<void> {
    this.#stop();
    this.#closed.abort();
    this.state.expiresAt = 0;
  }
}

class LocalEntry implements QueueEntry {
  readonly #memory: QueueMemory;
  readonly #entry: MemoryEntry;
  readonly #carry: Carry;

  constructor(memory: QueueMemory, entry: MemoryEntry, carry: Carry) {
    this.#memory = memory;
    this.#entry = entry;
    this.#carry = carry;
  }

  get token(): bigint {
    return this.#entry.token;
  }

  async waitForTurn(signal: AbortSignal): Promise<void> {
    const look = async () => this.#memory.before(this.#entry).length === 0;
    while (!(await this.#carry("look", look, signal))) {
      await sleep(50, signal);
    }
  }

  guard(): () => void {
    return () => {};
  }

  leave(limit?: AbortSignal): Promise<boolean> {
    return this.#carry("leave", async () => this.#memory.leave(this.#entry), limit);
  }

  async move(session: MemorySession, limit: AbortSignal): Promise<boolean> {
    const write = async () => {
      this.#entry.session = session;
      return true;
    };
    return this.#carry("move", write, limit);
  }
}
