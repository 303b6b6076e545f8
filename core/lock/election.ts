import { follow } from "./abort.ts";
import { Leadership, type LeadershipOptions } from "./leadership.ts";
import type { Unlocked } from "./lock.ts";
import type { QueueEntry } from "./session-queue.ts";

/** The leader of an election, and the value that it has proclaimed. */
export interface Leader {
  /** The key or path of its queue entry. */
  readonly key: string;
  readonly value: string;

  /** The revision at which it became a candidate: its fencing token. */
  readonly token: bigint;

  /** The revision of the last write of its value: rises with each value that it proclaims. */
  readonly revision: bigint;
}

/** A candidate in an election: candidates queue as locks do, each with a value in its entry, and the first one leads. */
export interface Election {
  /** The key or path of the queue entry; undefined while this candidate does not lead. */
  readonly key: string | undefined;

  /** The revision at which the entry was created, the fencing token; undefined while this candidate does not lead. */
  readonly token: bigint | undefined;

  /** Aborts when the leadership is lost or given up; aborted while this candidate does not lead. */
  readonly signal: AbortSignal;

  /**
   * Becomes a candidate and resolves when elected. A leader proclaims the new value and stays the leader.
   *
   * Rejects with a SessionExpiredError as soon as the session, or the entry, is gone: such a candidate never wins; with
   * the signal's reason; or as the store does. No entry is left in the queue then, unless the store cannot be reached:
   * such an entry stays until the session is closed.
   */
  campaign(value: string, options?: { readonly signal?: AbortSignal }): Promise<void>;

  /** Changes the leader's value. Rejects with a LockReleasedError unless this candidate leads. */
  proclaim(value: string): Promise<void>;

  /** Gives the leadership up, so that the next candidate is elected. Resolves to `was-lost` when not leading. */
  resign(): Promise<Unlocked>;

  /** Resolves to the current leader, or to undefined when there is none. */
  leader(signal?: AbortSignal): Promise<Leader | undefined>;

  /**
   * Yields the current leader and each later one, undefined while there is none, until the signal aborts: then it
   * throws the signal's reason.
   *
   * A consumer always gets the latest state, may miss states that ended before it asked, and never gets an older one.
   */
  observe(options?: { readonly signal?: AbortSignal }): AsyncGenerator<Leader | undefined>;
}

/** The queue of an election, in a store. */
export interface ElectionQueue<E extends CandidateEntry> extends LeadershipOptions {
  /** Enters the queue. When it rejects, no entry is left, as far as the store can be reached. */
  enter(value: string, signal: AbortSignal): Promise<E>;

  /** Writes a new value into the entry. Resolves to false when the entry is gone. */
  write(entry: E, value: string): Promise<boolean>;

  /** Resolves to the first entry of the queue. */
  first(signal?: AbortSignal): Promise<Leader | undefined>;

  /** Yields the first entry of the queue, and yields it again whenever it may have changed. */
  changes(signal: AbortSignal): AsyncGenerator<Leader | undefined>;
}

export interface CandidateEntry extends QueueEntry {
  readonly key: string;
  readonly token: bigint;

  /** Whether the entry was in the queue before, and may have another value. */
  readonly isAdopted: boolean;
}

/** Makes an election of a queue. `entry` is that of a candidate which leads already. */
export function electionOn<E extends CandidateEntry>(queue: ElectionQueue<E>, entry?: E): Election {
  return new Candidate(queue, entry);
}

class Candidate<E extends CandidateEntry> implements Election {
  readonly #queue: ElectionQueue<E>;
  readonly #leadership: Leadership<E>;

  constructor(queue: ElectionQueue<E>, entry: E | undefined) {
    this.#queue = queue;
    this.#leadership = new Leadership(queue);
    if (entry) this.#leadership.begin(entry);
  }

  get key(): string | undefined {
    return this.#leadership.entry?.key;
  }

  get token(): bigint | undefined {
    return this.#leadership.entry?.token;
  }

  get signal(): AbortSignal {
    return this.#leadership.signal;
  }

  async campaign(value: string, { signal }: { readonly signal?: AbortSignal } = {}): Promise<void> {
    if (!this.signal.aborted) return this.proclaim(value);
    const scope = follow(signal, this.#queue.session.signal);
    try {
      await this.#leadership.settled();
      scope.signal.throwIfAborted();
      this.#leadership.begin(await this.#elected(value, scope.signal));
    } finally {
      scope[Symbol.dispose]();
    }
  }

  async proclaim(value: string): Promise<void> {
    const { entry } = this.#leadership;
    if (!entry || this.signal.aborted) throw this.#leadership.released();
    await this.#write(entry, value);
  }

  resign(): Promise<Unlocked> {
    return this.#leadership.giveUp();
  }

  leader(signal?: AbortSignal): Promise<Leader | undefined> {
    return this.#queue.first(signal);
  }

  async *observe({
    signal = new AbortController().signal,
  } = {}): AsyncGenerator<Leader | undefined> {
    let last: Leader | undefined | "none yet" = "none yet";
    let latest: Leader | undefined;
    for await (const leader of this.#queue.changes(signal)) {
      if (last !== "none yet" && leader?.revision === last?.revision) continue;
      if (leader && latest && isBefore(leader, latest)) continue;
      latest = leader ?? latest;
      last = leader;
      yield leader;
    }
  }

  /** Resolves to an entry that is the first one. */
  async #elected(value: string, signal: AbortSignal): Promise<E> {
    const entry = await this.#queue.enter(value, signal);
    try {
      if (entry.isAdopted) await this.#write(entry, value);
      await entry.waitForTurn(signal);
      signal.throwIfAborted();
      return entry;
    } catch (error) {
      await this.#leadership.decline(entry);
      throw error;
    }
  }

  async #write(entry: E, value: string): Promise<void> {
    if (!(await this.#queue.write(entry, value))) throw this.#leadership.released();
  }
}

function isBefore(a: Leader, b: Leader): boolean {
  return a.token === b.token ? a.revision < b.revision : a.token < b.token;
}
