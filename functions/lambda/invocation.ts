import type { Context } from "aws-lambda";
import { type Deadline, deadlineIn, type Millis } from "../../core/lock/time.ts";
import { type Duration, toMillis } from "../../core/steps/duration.ts";

/** What is used of Lambda's context. */
export type LambdaContext = Pick<Context, "getRemainingTimeInMillis">;

export interface ReserveOption {
  /**
   * How much of the invocation is kept for giving back what is held and for the answer to arrive: nothing is begun
   * then, and what is under way is let go of. Default 1.5 s.
   */
  readonly reserve?: Duration;
}

/** With less than this, nothing is worth beginning. */
export const LEAST_WORK: Millis = 1_000;

export function toReserve({ reserve = 1_500 }: ReserveOption): Millis {
  return toMillis("reserve", reserve);
}

/**
 * The end of the invocation, less `reserve`, by both clocks: a frozen environment may stop one of them.
 *
 * In the moments before it kills a function, Lambda says that 0 ms remain: that is none, not unknown.
 */
export function deadlineOf(context: LambdaContext, reserve: Millis): Deadline {
  return deadlineIn(context.getRemainingTimeInMillis() - reserve);
}
