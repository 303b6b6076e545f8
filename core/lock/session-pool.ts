import { follow, race } from "./abort.ts";
import { StoreClosedError, StoreRefusedError } from "./errors.ts";
import type { LeaseGrant } from "./lease.ts";
import { after, type Millis } from "./time.ts";

/** A session of a store, which keeps it alive: the store deletes what is attached to a session when the session ends. */
export interface StoreSession {
  /** As the store has granted it. */
  readonly ttl: Millis;

  /** The last grant of the ttl. */
  readonly granted: LeaseGrant;

  /** Aborts when the session ends. */
  readonly signal: AbortSignal;

  /** Milliseconds for which the session certainly lives; 0 once it has ended. */
  remaining(): Millis;

  /** Resolves to a recent grant, which may have run down in part, or to undefined when the session has ended. */
  renew(signal: AbortSignal): Promise<LeaseGrant | undefined>;

  /** Starts the whole ttl anew. Resolves to undefined when the session has ended. */
  restart(signal: AbortSignal): Promise<LeaseGrant | undefined>;

  /** Stops to keep the session alive. */
  stopKeepAlive(): void;

  /** Ends the session, as far as the store can be reached. Never rejects. */
  close(): Promise<void>;
}

/** A session that one lock uses, or several. */
export interface PooledSession<S> {
  readonly session: S;

  /** Whether other locks use the session too. */
  readonly isShared: boolean;

  /**
   * Gives the session to no other lock. Once this lock has released it, `cleanup` removes what the lock may have left
   * behind, until that is done or the session ends.
   */
  retire(cleanup?: Cleanup<S>): void;

  /** Returns the session: the lock is released, or was never acquired. */
  release(): void;
}

/** One attempt to remove what a lock may have left behind. Resolves to whether nothing can be left any more. */
export type Cleanup<S> = (session: S) => Promise<boolean>;

interface SessionPoolOptions<S> {
  /** The address of the store, for errors. */
  readonly address: string;

  /** The unit in which the store counts a ttl. */
  readonly unit: Millis;

  open(ttl: Millis, signal: AbortSignal): Promise<S>;
}

/** How long an idle session is kept for the next lock. */
const IDLE: Millis = 60_000;

/** The most idle sessions: a session of ZooKeeper has a connection, of which servers allow 60 per address. */
const MOST_IDLE = 8;

/**
 * The sessions of a client's locks: a shared one for each ttl in units, so that a lock needs no session of its own, and an own
 * one for each lock that is not renewed or is held for longer than its ttl.
 */
export class SessionPool<S extends StoreSession> {
  readonly #options: SessionPoolOptions<S>;
  readonly #shared = new Map<Millis, Promise<SharedSession<S>>>();

  /** The shared sessions that no lock uses, the last used one at the end. */
  readonly #idle = new Set<SharedSession<S>>();
  readonly #open = new Set<S>();
  readonly #ending = new Set<Promise<void>>();
  readonly #closing = new AbortController();

  constructor(options: SessionPoolOptions<S>) {
    this.#options = options;
  }

  /**
   * Resolves to a shared session that certainly lives for a third of its ttl. Rejects with a StoreRefusedError where the
   * store grants less than `least`.
   */
  async share(ttl: Millis, signal: AbortSignal, least = ttl): Promise<PooledSession<S>> {
    const rounded = this.#rounded(ttl);
    for (;;) {
      const known = this.#shared.get(rounded);
      const opening = known ?? this.#openShared(rounded);
      if (!known) {
        this.#shared.set(rounded, opening);
        opening.catch(() => this.#forget(rounded, opening));
      }
      const shared = await race(opening, signal);
      this.#checkTtl(shared.session, least);
      if (shared.isUsable()) return shared.borrow();
      this.#forget(rounded, opening);
      shared.retire();
    }
  }

  /** Resolves to a session for one lock alone. Rejects as `share` does. */
  async own(ttl: Millis, signal: AbortSignal, least = ttl): Promise<PooledSession<S>> {
    const session = await this.#openOne(this.#rounded(ttl), signal);
    const release = () => this.#end(session);
    try {
      this.#checkTtl(session, least);
    } catch (error) {
      release();
      throw error;
    }
    return { session, isShared: false, retire: () => {}, release };
  }

  /** Ends all sessions. */
  async close(): Promise<void> {
    this.#closing.abort(new StoreClosedError());
    await Promise.allSettled(this.#shared.values());
    for (const session of this.#open) this.#end(session);
    await Promise.all(this.#ending);
  }

  #rounded(ttl: Millis): Millis {
    const { unit } = this.#options;
    return Math.ceil(ttl / unit) * unit;
  }

  async #openShared(ttl: Millis): Promise<SharedSession<S>> {
    const session = await this.#openOne(ttl);
    const shared = new SharedSession(session, {
      rested: () => this.#rest(shared),
      used: () => this.#idle.delete(shared),
      ended: () => {
        this.#idle.delete(shared);
        this.#end(session);
      },
    });
    this.#rest(shared);
    return shared;
  }

  #rest(shared: SharedSession<S>): void {
    this.#idle.add(shared);
    const [oldest] = this.#idle;
    if (this.#idle.size > MOST_IDLE) oldest?.retire();
  }

  async #openOne(ttl: Millis, signal?: AbortSignal): Promise<S> {
    const scope = follow(signal, this.#closing.signal);
    const opening = this.#options.open(ttl, scope.signal);
    const session = await opening.finally(() => scope[Symbol.dispose]());
    this.#open.add(session);
    return session;
  }

  #forget(ttl: Millis, opening: Promise<SharedSession<S>>): void {
    if (this.#shared.get(ttl) === opening) this.#shared.delete(ttl);
  }

  /** Ends a session in the background; only `close` waits for that. */
  #end(session: S): void {
    if (!this.#open.delete(session)) return;
    const ending = session.close().finally(() => this.#ending.delete(ending));
    this.#ending.add(ending);
  }

  #checkTtl({ ttl }: S, least: Millis): void {
    if (ttl >= least) return;
    const problem = `its sessions last ${ttl} ms at most, not ${Math.ceil(least)} ms`;
    const advice = "take a shorter ttl, or raise the server's limit (maxSessionTimeout)";
    throw new StoreRefusedError(this.#options.address, `${problem}: ${advice}`);
  }
}

interface SharedSessionEvents {
  /** Called when no lock uses the session any more. */
  rested(): void;

  /** Called when a lock uses the session. */
  used(): void;

  /** Called when no lock will use the session any more. */
  ended(): void;
}

class SharedSession<S extends StoreSession> {
  readonly session: S;
  readonly #events: SharedSessionEvents;
  readonly #cleanups = new Set<Cleanup<S>>();
  #users = 0;
  #isRetired = false;
  #isCleaning = false;
  #cancelEnd: () => void;
  #cancelCleanUp = () => {};

  constructor(session: S, events: SharedSessionEvents) {
    this.session = session;
    this.#events = events;
    this.#cancelEnd = this.#endWhenIdle();
  }

  /** Whether a new lock can use the session: not after failed renewals, nor after a freeze of the process. */
  isUsable(): boolean {
    return !this.#isRetired && this.session.remaining() > this.session.ttl / 3;
  }

  borrow(): PooledSession<S> {
    this.#users += 1;
    this.#cancelEnd();
    this.#events.used();
    const cleanups: Cleanup<S>[] = [];
    let isBorrowed = true;
    const release = () => {
      if (isBorrowed) this.#takeBack(cleanups);
      isBorrowed = false;
    };
    const retire = (cleanup?: Cleanup<S>) => {
      if (cleanup) cleanups.push(cleanup);
      this.retire();
    };
    return { session: this.session, isShared: true, retire, release };
  }

  retire(): void {
    this.#isRetired = true;
    if (this.#users === 0) this.#events.ended();
  }

  #takeBack(cleanups: readonly Cleanup<S>[]): void {
    this.#users -= 1;
    for (const cleanup of cleanups) this.#cleanups.add(cleanup);
    if (this.#users > 0) void this.#cleanUp();
    else if (this.#isRetired) this.#events.ended();
    else {
      this.#cancelEnd = this.#endWhenIdle();
      this.#events.rested();
    }
  }

  #endWhenIdle(): () => void {
    return after(IDLE, () => this.retire(), { idle: true });
  }

  /** Other locks keep the session alive, so what was left behind does not expire. */
  async #cleanUp(): Promise<void> {
    if (this.#isCleaning) return;
    this.#isCleaning = true;
    this.#cancelCleanUp();
    // The loop visits cleanups that are added meanwhile, too.
    for (const cleanup of this.#cleanups) {
      if (this.session.signal.aborted) return;
      if (await cleanup(this.session).catch(() => false)) this.#cleanups.delete(cleanup);
    }
    this.#isCleaning = false;
    if (this.#cleanups.size === 0) return;
    const again = () => void this.#cleanUp();
    this.#cancelCleanUp = after(this.session.ttl / 3, again, { idle: true });
  }
}
