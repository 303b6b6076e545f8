import { deadline, follow, noAnswer } from "./abort.ts";
import { releaseUntilKnown } from "./attempts.ts";
import type { Backend, Hold, LockRequest } from "./backend.ts";
import {
  hasCode,
  LockLostError,
  type LossReason,
  SessionExpiredError,
  StoreUnavailableError,
} from "./errors.ts";
import type { Fence } from "./fence.ts";
import { driftMargin, Lease, type LeaseGrant } from "./lease.ts";
import type { Unlocked } from "./lock.ts";
import { backoff, retry } from "./retry.ts";
import type { PooledSession, SessionPool, StoreSession } from "./session-pool.ts";
import { elapsedSince, instant, type Millis } from "./time.ts";

/** An entry in one queue, or in several at once: the lock is held when no entry is before ours in any of them. */
export interface QueueEntry {
  /**
   * Resolves when no entry is before ours. Rejects with a SessionExpiredError as soon as the entry is gone, and with the
   * signal's reason; the caller's signal aborts when the session ends.
   */
  waitForTurn(signal: AbortSignal): Promise<void>;

  /** Calls `onGone` as soon as the entry or its session is gone, until the returned function is called. */
  guard(onGone: (loss: Error) => void): () => void;

  /** Removes the entry, owner-checked. Resolves to false when the entry was gone, or a part of it. */
  leave(limit?: AbortSignal): Promise<boolean>;
}

/** A store whose locks are queues of entries, each attached to a session. `sessionQueueBackend` does the rest. */
export interface LockQueues<S extends StoreSession, E extends QueueEntry>
  extends Omit<Backend, "acquire"> {
  /** The address of the store, for errors. */
  readonly address: string;
  readonly sessions: SessionPool<S>;

  /**
   * Enters the queues of all of the request's names. Without a `wait`, resolves to undefined unless all of them were empty.
   *
   * When it rejects, no entry is left, or the session is retired with a cleanup. If the session has ended, the error is a
   * NotQueuedError.
   */
  enter(request: LockRequest, session: PooledSession<S>): Promise<E | undefined>;

  /** In the order of the names. */
  fencesOf(entry: E, names: readonly string[]): readonly Fence[];

  /** Attaches the entry to another session, in the same place. Resolves to false when the entry is gone. */
  move(entry: E, session: S, limit: AbortSignal): Promise<boolean>;

  /** Removes what a late request may have written for the entry. Resolves to whether no later one can. */
  cleanUp(entry: E, session: S): Promise<boolean>;
}

/** The session had ended before the request was queued. */
export class NotQueuedError extends SessionExpiredError {
  override readonly name = "NotQueuedError";
}

/** Turns queues into a backend: enters, waits for the turn, and holds the lock on the session of the entry. */
export function sessionQueueBackend<S extends StoreSession, E extends QueueEntry>(
  queues: LockQueues<S, E>,
): Backend {
  return {
    traits: queues.traits,
    wakeUps: queues.wakeUps,
    incidents: queues.incidents,
    acquire: (request) => acquire(queues, request),
    whenFree: (name, signal) => queues.whenFree(name, signal),
    find: (name) => queues.find(name),
    list: (prefix) => queues.list(prefix),
    raiseGeneration: (least) => queues.raiseGeneration(least),
    async close() {
      await queues.sessions.close();
      await queues.close();
    },
  };
}

/**
 * Queues again, as long as `wait` lasts, when the session of the entry has ended: a failover of the store can outlast a
 * session. A request that was queued once outlasts an unavailable store as well.
 */
function acquire<S extends StoreSession, E extends QueueEntry>(
  queues: LockQueues<S, E>,
  request: LockRequest,
): Promise<Hold | undefined> {
  const { wait, signal } = request;
  const startedAt = instant();
  let wasQueued = false;
  const attempt = () => {
    const left = Math.max(0, wait - elapsedSince(startedAt));
    return acquireOnce(queues, { ...request, wait: left });
  };
  const pauseAfter = (error: unknown, count: number) => {
    signal.throwIfAborted();
    wasQueued ||= hasCode(error, "SESSION_EXPIRED");
    const isPassing = wasQueued && hasCode(error, "SESSION_EXPIRED", "STORE_UNAVAILABLE");
    return isPassing && elapsedSince(startedAt) < wait ? backoff(count) : undefined;
  };
  return retry(attempt, pauseAfter, signal);
}

/** Acquires on a pooled session; on a second one, if the first one had ended unnoticed. */
async function acquireOnce<S extends StoreSession, E extends QueueEntry>(
  queues: LockQueues<S, E>,
  request: LockRequest,
): Promise<Hold | undefined> {
  const { sessions } = queues;
  const { ttl, renew, signal } = request;
  for (let attempt = 0; ; attempt += 1) {
    const session = renew ? await sessions.share(ttl, signal) : await sessions.own(ttl, signal);
    let hold: Hold | undefined;
    try {
      hold = await acquireOn(session, queues, request);
      return hold;
    } catch (error) {
      if (!(error instanceof NotQueuedError) || attempt > 0) throw error;
      session.retire();
    } finally {
      if (hold === undefined) session.release();
    }
  }
}

async function acquireOn<S extends StoreSession, E extends QueueEntry>(
  pooled: PooledSession<S>,
  queues: LockQueues<S, E>,
  request: LockRequest,
): Promise<Hold | undefined> {
  const { renew, signal } = request;
  const entry = await queues.enter(request, pooled);
  if (!entry || !(await isTurnInTime(entry, pooled, queues, request))) return undefined;
  const isAlive = renew || (await startTtl(pooled.session, signal));
  const hold = new SessionHold(queues, request, entry, pooled);
  if (isAlive && hold.lease.remaining() > 0 && !signal.aborted) return hold;
  await hold.release("released").catch(() => {});
  signal.throwIfAborted();
  throw new StoreUnavailableError(queues.address, "its answer took longer than the ttl");
}

/** Waits for the turn, as long as `wait` lasts. Leaves the queue when the turn does not come. */
async function isTurnInTime<S extends StoreSession, E extends QueueEntry>(
  entry: E,
  pooled: PooledSession<S>,
  queues: LockQueues<S, E>,
  request: LockRequest,
): Promise<boolean> {
  const { wait, signal } = request;
  const limit = deadline(wait, noAnswer);
  const scope = follow(pooled.session.signal, signal, limit.signal);
  try {
    await entry.waitForTurn(scope.signal);
    return true;
  } catch (error) {
    await leave(queues, request, entry, [pooled], 0).catch(() => {});
    if (error === limit.signal.reason) return false;
    throw error;
  } finally {
    scope[Symbol.dispose]();
    limit[Symbol.dispose]();
  }
}

/** A lock that is not renewed starts with its whole ttl, however long the wait was. */
async function startTtl(session: StoreSession, signal: AbortSignal): Promise<boolean> {
  session.stopKeepAlive();
  if (elapsedSince(session.granted.sentAt) < session.ttl / 10) return true;
  return (await session.restart(signal).catch(() => undefined)) !== undefined;
}

/** Leaves the queue, where the entry is certainly ours for `remaining` milliseconds. Rejects with an UnknownOutcomeError. */
async function leave<S extends StoreSession, E extends QueueEntry>(
  queues: LockQueues<S, E>,
  { names, ttl }: LockRequest,
  entry: E,
  sessions: readonly PooledSession<S>[],
  remaining: Millis,
): Promise<boolean> {
  const drop = (limit: AbortSignal) => entry.leave(limit);
  try {
    return await releaseUntilKnown({ drop, store: queues.address, names, ttl, remaining });
  } catch (error) {
    for (const pooled of sessions) pooled.retire((session) => queues.cleanUp(entry, session));
    throw error;
  }
}

/** A lock held as the first entry of its queues, as long as the session of the entry certainly lives. */
class SessionHold<S extends StoreSession, E extends QueueEntry> implements Hold {
  readonly fences: readonly Fence[];
  readonly lease: Lease;
  readonly #queues: LockQueues<S, E>;
  readonly #request: LockRequest;
  readonly #entry: E;

  /** The session of the entry comes first; the entry may have moved to any of the others, unconfirmed. */
  readonly #sessions: [PooledSession<S>, ...PooledSession<S>[]];
  #stopGuard = () => {};
  #leaving: Promise<boolean> | undefined;

  constructor(queues: LockQueues<S, E>, request: LockRequest, entry: E, session: PooledSession<S>) {
    const { names, renew, maxHold, notify } = request;
    this.#queues = queues;
    this.#request = request;
    this.#entry = entry;
    this.#sessions = [session];
    this.fences = queues.fencesOf(entry, names);
    this.lease = new Lease({
      ...session.session.granted,
      names,
      autoRenew: renew,
      maxHold,
      notify,
      renew: (ttl, signal, span) => this.#renew(ttl, signal, span),
      toLossError: (why) => new LockLostError(names, why),
    });
    this.#guard();
    this.lease.onEnd(() => this.#leave(0).catch(() => {}));
  }

  /** Leaves the queue when the lease ends: the session may live on. */
  async release(why: LossReason): Promise<Unlocked> {
    const left = this.lease.remaining();
    const leaving = this.#leave(left);
    this.lease.end(why);
    return (await leaving) && left > 0 ? "released" : "was-lost";
  }

  /** A session's ttl cannot be lengthened: a lock that is to be held for longer moves to another session. */
  async #renew(ttl: Millis, signal: AbortSignal, span: Millis): Promise<LeaseGrant | undefined> {
    const [{ session, isShared }] = this.#sessions;
    if (ttl <= session.ttl) {
      const grant = await session.renew(signal);
      if (!grant || isEnough(grant, span)) return grant;
      if (!isShared) return session.restart(signal);
    }
    return this.#move(Math.max(ttl, session.ttl), signal, span);
  }

  async #move(ttl: Millis, signal: AbortSignal, span: Millis): Promise<LeaseGrant | undefined> {
    const own = await this.#queues.sessions.own(ttl, signal, span + 2 * driftMargin(span));
    if (this.#leaving) {
      own.release();
      return undefined;
    }
    // Kept alive until the outcome of the move is known.
    this.#sessions.push(own);
    if (!(await this.#queues.move(this.#entry, own.session, signal))) return undefined;
    this.#sessions.splice(this.#sessions.indexOf(own), 1);
    this.#sessions.unshift(own);
    if (!this.#request.renew) own.session.stopKeepAlive();
    if (!this.#leaving) this.#guard();
    return own.session.granted;
  }

  #guard(): void {
    this.#stopGuard();
    this.#stopGuard = this.#entry.guard(() => {
      this.lease.end(this.lease.remaining() > 0 ? "taken" : "expired");
    });
  }

  /** Leaves the queue once; again only after a failure. */
  #leave(remaining: Millis): Promise<boolean> {
    this.#leaving ??= this.#leaveOnce(remaining).catch((error) => {
      this.#leaving = undefined;
      throw error;
    });
    return this.#leaving;
  }

  async #leaveOnce(remaining: Millis): Promise<boolean> {
    this.#stopGuard();
    try {
      return await leave(this.#queues, this.#request, this.#entry, this.#sessions, remaining);
    } finally {
      for (const session of this.#sessions) session.release();
    }
  }
}

function isEnough({ ttl, sentAt }: LeaseGrant, span: Millis): boolean {
  return ttl - driftMargin(ttl) - elapsedSince(sentAt) >= span;
}
