import { checkFunction, wrongType } from "../../core/lock/checks.ts";
import { type Duration, toMillis } from "../../core/lock/duration.ts";
import type { Lock, LockStore } from "../../core/lock/lock.ts";
import { checkOptionNames, type OptionNames } from "../../core/lock/options.ts";
import {
  deadlineOf,
  type LambdaContext,
  type ReserveOption,
  reserveOf,
  withinInvocation,
} from "../invocation/invocation.ts";
import { type Provider, resolve } from "../invocation/provider.ts";
import { runLocked } from "../invocation/run-locked.ts";

export interface LockedHandlerOptions<Event> extends ReserveOption {
  /** The lock's name, or a function of the event that returns the name. */
  readonly name: string | ((event: Event) => string);

  /** The longest wait for the lock; at least a second of the invocation is left for work. Default 0: one attempt. */
  readonly wait?: Duration;
}

const OPTIONS = {
  name: true,
  wait: true,
  reserve: true,
} satisfies OptionNames<LockedHandlerOptions<unknown>>;

/**
 * Returns a Lambda handler that runs under a lock and releases the lock before the response.
 *
 *     const opened = lazy(() => open("mysql://app@db.internal/shop"));
 *     const locks = async () => (await opened()).locks;
 *     export const handler = lockedHandler(locks, { name: "report" }, async (event: { day: string }, lock) => {
 *       lock.assertHeld();
 *       return `${event.day} under ${lock.fence}`;
 *     });
 *
 * The lock is never renewed. The lock expires two seconds after the end of the invocation, so it cannot expire under a
 * running function and is free soon after a killed one. `lock.signal` aborts `reserve` before the invocation ends. A body
 * that goes on is abandoned when most of the reserve is used up, and its lock expires.
 *
 * Rejects with a LockTimeoutError when the lock is held by another owner or too little time is left to start, and with a
 * LockLostError when the lock was lost meanwhile or the body was abandoned.
 */
export function lockedHandler<Event, Result, Context extends LambdaContext = LambdaContext>(
  locks: Provider<LockStore>,
  options: LockedHandlerOptions<Event>,
  body: (event: Event, lock: Lock, context: Context) => Promise<Result>,
): (event: Event, context: Context) => Promise<Result> {
  if (options === undefined) throw wrongType("the options of lockedHandler", "an object", options);
  checkOptionNames("lockedHandler", options, OPTIONS);
  checkFunction("the body of lockedHandler", body);
  const reserve = reserveOf(options);
  const wait = toMillis("wait", options.wait ?? 0);
  return async (event, context) => {
    const end = deadlineOf(context, 0);
    const opening = deadlineOf(context, reserve);
    const store = await withinInvocation(opening, 0, () => resolve(locks));
    const name = typeof options.name === "function" ? options.name(event) : options.name;
    return runLocked(store, { name, wait, end, reserve }, (lock) => body(event, lock, context));
  };
}
