import { deadline, noAnswer, race, type Scope } from "../../core/lock/abort.ts";
import { type Duration, toMillis } from "../../core/lock/duration.ts";
import { LockLostError, LockTimeoutError } from "../../core/lock/errors.ts";
import type { Fence } from "../../core/lock/fence.ts";
import type { Lock, LockStore, Unlocked } from "../../core/lock/lock.ts";
import { closureOf, lossOf } from "../../core/lock/lock-handle.ts";
import type { Deadline, Millis } from "../../core/lock/time.ts";
import { LAST_WAIT, MIN_WORK_TIME, withinInvocation } from "./invocation.ts";

export interface LockTerms {
  readonly name: string;
  readonly wait: Millis;

  /** The end of the invocation. The lock expires later. */
  readonly end: Deadline;

  /** The part of the invocation that is kept for the release of the lock. */
  readonly reserve: Millis;
  readonly signal?: AbortSignal;
}

/**
 * Runs `body` under a lock that is never renewed, and releases the lock after it. A body that goes on when most of the
 * reserve is used up is abandoned, and its lock expires: it may still work.
 *
 * Rejects with a LockTimeoutError when the lock is held by another owner or too little time is left to start, with a
 * LockLostError when the lock was lost meanwhile or the body was abandoned, and with the error of `body`.
 */
export async function runLocked<T>(
  locks: LockStore,
  { name, wait, end, reserve, signal }: LockTerms,
  body: (lock: Lock) => Promise<T>,
): Promise<T> {
  const spare = end.remaining() - reserve - MIN_WORK_TIME;
  if (spare <= 0) {
    const problem = "was not tried: too little time is left in this invocation";
    throw new LockTimeoutError([name], 0, problem);
  }
  const waiting = { wait: Math.min(wait, spare), signal };
  const lock = await locks.lock(name, { ttl: "invocation", deadline: end, ...waiting });
  const held = new InvocationLock(lock, { remaining: () => end.remaining() - reserve });
  const over = new LockLostError([name], "max-hold");
  let result: T;
  try {
    const lateBy = -reserve * (1 - LAST_WAIT);
    result = await withinInvocation(end, lateBy, () => body(held), over);
  } catch (error) {
    if (error !== over) await release(held, end);
    throw error;
  }
  // A store that was closed meanwhile has released its locks, and may have done so before the body's end.
  const closed = closureOf(lock);
  if (closed) throw closed;
  if ((await release(held, end)) === "released") return result;
  throw lossOf(held) ?? new LockLostError([name], "taken");
}

/**
 * Releases the lock within half of the remaining time. A store that does not answer must not delay the response: the
 * lock expires by itself, and may already have expired.
 */
async function release(lock: InvocationLock, end: Deadline): Promise<Unlocked> {
  const limit = deadline(end.remaining() / 2, noAnswer);
  try {
    return await race(lock.unlock(), limit.signal);
  } catch {
    return lock.loss ? "was-lost" : "released";
  } finally {
    limit[Symbol.dispose]();
  }
}

/**
 * A lock that ends with its invocation.
 *
 * Code that is still running when Lambda freezes the environment continues when another event thaws it. From the
 * deadline on every member throws a LockLostError, `fence` included, so such code cannot send a write that the
 * resource might still accept.
 */
class InvocationLock implements Lock {
  readonly name: string;
  readonly #lock: Lock;
  readonly #deadline: Deadline;
  readonly #scope: Scope;

  /** The lock counts as lost from `end` on. */
  constructor(lock: Lock, end: Deadline) {
    this.name = lock.name;
    this.#lock = lock;
    this.#deadline = end;
    this.#scope = deadline(end.remaining(), () => this.#invocationEnded(), lock.signal);
  }

  get signal(): AbortSignal {
    return this.#scope.signal;
  }

  /** The loss of the lock in the store, if the lock was lost before its release. */
  get loss(): LockLostError | undefined {
    return lossOf(this.#lock);
  }

  get fence(): Fence {
    this.assertHeld();
    return this.#lock.fence;
  }

  assertHeld(spare: Duration = 0): void {
    this.signal.throwIfAborted();
    this.#lock.assertHeld(spare);
    if (this.#deadline.remaining() < Math.max(toMillis("spare", spare), 1))
      throw this.#invocationEnded();
  }

  async ensure(span: Duration): Promise<void> {
    this.assertHeld(span);
    await this.#lock.ensure(span);
  }

  async unlock(): Promise<Unlocked> {
    try {
      return await this.#lock.unlock();
    } finally {
      this.#scope[Symbol.dispose]();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.unlock().catch(() => {});
  }

  #invocationEnded(): LockLostError {
    return new LockLostError([this.name], "max-hold");
  }
}
