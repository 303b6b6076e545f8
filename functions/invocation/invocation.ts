import type { Context } from "aws-lambda";
import { deadline as abortAfter, race } from "../../core/lock/abort.ts";
import { checkFunction } from "../../core/lock/checks.ts";
import { type Duration, deadlineIn, toMillis } from "../../core/lock/duration.ts";
import type { Deadline, Millis } from "../../core/lock/time.ts";

/** The part of Lambda's context that the handlers use. */
export type LambdaContext = Pick<Context, "getRemainingTimeInMillis">;

export interface ReserveOption {
  /**
   * The last part of the invocation, kept for releasing locks and for the response. New work does not start in the
   * reserve, and running work is abandoned. Default 1.5 s.
   */
  readonly reserve?: Duration;
}

export interface LockWaitOption {
  /**
   * The longest wait for a busy lock of a step: a function is paid for while it waits. Default 0: the run is parked at
   * once, and goes on when the lock is free. A step with `onBusy: "fail"` waits as long as it says.
   */
  readonly lockWait?: Duration;
}

/**
 * Settles as the work does, or rejects with `over` when `span` milliseconds of the reserve are used up: Lambda would kill a
 * function that waits longer. The signal of the work aborts then.
 */
export async function withinInvocation<T>(
  deadline: Deadline,
  span: Millis,
  work: (signal: AbortSignal) => Promise<T>,
  over = new Error("the invocation is over, and a store has not answered"),
): Promise<T> {
  using limit = abortAfter(deadline.remaining() + span, () => over);
  return await race(work(limit.signal), limit.signal);
}

/** The part of the reserve after which nothing is awaited any more. */
export const LAST_WAIT = 5 / 6;

/** The least time in which starting work is worthwhile. */
export const MIN_WORK_TIME: Millis = 1_000;

export function reserveOf({ reserve = 1_500 }: ReserveOption): Millis {
  return toMillis("reserve", reserve);
}

export function lockWaitOf({ lockWait = 0 }: LockWaitOption): Millis {
  return toMillis("lockWait", lockWait);
}

/**
 * Returns the end of the invocation minus `reserve`, by both clocks: freezing the environment may stop one of them.
 *
 * Just before Lambda kills a function, it reports 0 ms remaining. The 0 means no time, not an unknown time.
 */
export function deadlineOf(context: LambdaContext, reserve: Millis): Deadline {
  checkFunction("context.getRemainingTimeInMillis", context?.getRemainingTimeInMillis);
  return deadlineIn(Math.max(0, context.getRemainingTimeInMillis() - reserve));
}
