import { deadline, noAnswer, race } from "../../core/lock/abort.ts";
import { LockLostError, LockTimeoutError } from "../../core/lock/errors.ts";
import { lossOf } from "../../core/lock/holding.ts";
import type { Lock, LockStore, Unlocked } from "../../core/lock/lock.ts";
import type { Deadline, Millis } from "../../core/lock/time.ts";
import { LEAST_WORK } from "./invocation.ts";
import { InvocationLock } from "./invocation-lock.ts";

export interface Locking {
  readonly name: string;
  readonly wait: Millis;

  /** The lock outlives it. */
  readonly end: Deadline;

  /** How much of the time until then is kept for giving the lock back. */
  readonly reserve: Millis;
  readonly signal?: AbortSignal;
}

/**
 * Runs `body` under a lock that is never renewed, and gives the lock back in every case.
 *
 * Rejects with a LockTimeoutError when others have it, or when too little time is left to begin; with a
 * LockLostError when it was lost meanwhile; and as `body` does.
 */
export async function underLock<T>(
  locks: LockStore,
  { name, wait, end, reserve, signal }: Locking,
  body: (lock: Lock) => Promise<T>,
): Promise<T> {
  const spare = end.remaining() - reserve - LEAST_WORK;
  if (spare <= 0) throw new LockTimeoutError([name], 0);
  const patience = { wait: Math.min(wait, spare), ...(signal && { signal }) };
  const lock = await locks.lock(name, { ttl: "invocation", deadline: end, ...patience });
  const held = new InvocationLock(lock, { remaining: () => end.remaining() - reserve });
  return carry(held, end, () => body(held));
}

async function carry<T>(lock: InvocationLock, end: Deadline, body: () => Promise<T>): Promise<T> {
  let result: T;
  try {
    result = await body();
  } catch (error) {
    await release(lock, end);
    throw error;
  }
  if ((await release(lock, end)) === "released") return result;
  throw lossOf(lock) ?? new LockLostError([lock.name], "taken");
}

/**
 * A store that does not answer in time does not keep the handler from answering: the lock expires by itself, and may
 * have done so already.
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
