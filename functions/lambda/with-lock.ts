import type { Lock, LockStore } from "../../core/lock/lock.ts";
import { type Duration, toMillis } from "../../core/steps/duration.ts";
import { deadlineOf, type LambdaContext, type ReserveOption, toReserve } from "./invocation.ts";
import { from, type Source } from "./source.ts";
import { underLock } from "./under-lock.ts";

export interface LambdaLockOptions<Event> extends ReserveOption {
  /** The lock's name, for every event or for this one. */
  readonly name: string | ((event: Event) => string);

  /** How long to stand in line, and no longer than leaves a second to work. Default 0: one attempt. */
  readonly wait?: Duration;
}

/**
 * A Lambda handler that runs under a lock, which is given back before it answers.
 *
 *     export const handler = withLock(() => openStore(url), { name: "report" }, async (event, lock) => {
 *       lock.assertHeld();
 *       await write(event, lock.fence);
 *     });
 *
 * The lock is never renewed: it outlasts the invocation by two seconds, so that it cannot expire under a function
 * that runs, and is free soon after one that was killed. `lock.signal` aborts `reserve` before the invocation ends.
 *
 * Rejects with a LockTimeoutError when others have it, or when too little of the invocation is left to begin.
 */
export function withLock<Event, Result, Context extends LambdaContext = LambdaContext>(
  locks: Source<LockStore>,
  options: LambdaLockOptions<Event>,
  body: (event: Event, lock: Lock, context: Context) => Promise<Result>,
): (event: Event, context: Context) => Promise<Result> {
  const reserve = toReserve(options);
  const wait = toMillis("wait", options.wait ?? 0);
  const { name } = options;
  return async (event, context) => {
    const end = deadlineOf(context, 0);
    const store = await from(locks);
    const wanted = typeof name === "function" ? name(event) : name;
    const locking = { name: wanted, wait, end, reserve };
    return underLock(store, locking, (lock) => body(event, lock, context));
  };
}
