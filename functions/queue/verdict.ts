import type { SQSRecord } from "aws-lambda";
import type { Millis } from "../../core/lock/time.ts";

/** What becomes of a message. */
export type Verdict =
  | { readonly kind: "done" }
  /** It comes again, in `wakeIn` milliseconds or somewhat later, and that is no failure of its own. */
  | Later
  /** It can never succeed. */
  | { readonly kind: "poison"; readonly error: unknown };

export interface Later {
  readonly kind: "later";
  readonly why: LaterReason;
  readonly wakeIn: Millis;
  readonly error?: unknown;
}

/**
 * - `busy`: somebody else has the lock, or carries the run. - `parked`: the run waits for something.
 * - `unstarted`: too little of the invocation was left. - `behind`: a message before it in its group comes again.
 * - `error`: something else has failed, such as a store that does not answer.
 */
export type LaterReason = "busy" | "parked" | "unstarted" | "behind" | "error";

export const DONE: Verdict = { kind: "done" };

export function later(why: LaterReason, wakeIn: Millis = 0, error?: unknown): Later {
  return { kind: "later", why, wakeIn, error };
}

export type QueueEvent =
  | {
      readonly type: "later";
      readonly record: SQSRecord;
      readonly why: LaterReason;
      readonly error?: unknown;

      /** Undefined: once the queue's visibility timeout is over. */
      readonly seconds: number | undefined;
    }
  | { readonly type: "poison"; readonly record: SQSRecord; readonly error: unknown }
  /** The hook `delay` or `poison.to` has failed: the message comes back after the queue's visibility timeout. */
  | { readonly type: "hook-failed"; readonly record: SQSRecord; readonly error: unknown };

/** In seconds. SQS keeps a message invisible for 12 hours at the most, from its receipt on. */
const LONGEST = 11 * 3_600;
const LONGEST_STEP = 60;

/** So often a message for which there was no time comes back at once: a function may be too short for any. */
const MOST_AT_ONCE = 5;

/**
 * In how many seconds to try again: 1 after the first receipt, and up to a minute as it happens again and again, so
 * that contention does not use up the receives that the queue allows. Random by half, so that messages do not come
 * back in step.
 */
export function secondsUntil({ why, wakeIn }: Later, receives: number): number {
  if (why === "unstarted" && receives <= MOST_AT_ONCE) return 0;
  const step = Math.min(2 ** (receives - 1), LONGEST_STEP);
  const jittered = step * (0.5 + Math.random() / 2);
  return Math.min(Math.ceil(Math.max(jittered, wakeIn / 1_000)), LONGEST);
}
