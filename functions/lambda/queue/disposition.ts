import type { Millis } from "../../../core/lock/time.ts";
import type { RetryReason } from "./options.ts";

/** The handler's decision about a message. */
export type Disposition =
  | { readonly kind: "done" }
  | Retry
  /** The message can never succeed. */
  | { readonly kind: "poison"; readonly error: unknown };

/** Delivers the message again, after `wakeIn` milliseconds or somewhat later. */
export interface Retry {
  readonly kind: "retry";
  readonly reason: RetryReason;
  readonly wakeIn: Millis;
  readonly error?: unknown;
}

export const DONE: Disposition = { kind: "done" };

export function retry(reason: RetryReason, wakeIn: Millis = 0, error?: unknown): Retry {
  return { kind: "retry", reason, wakeIn, error };
}

export function poison(error: unknown): Disposition {
  return { kind: "poison", error };
}

/** In seconds. SQS keeps a message invisible for at most 12 hours after its receipt. */
const MAX_DELAY = 11 * 3_600;
const MAX_BACKOFF = 60;

/** An unstarted message is retried at once this many times: the function's timeout may be too short for any message. */
const IMMEDIATE_RETRIES = 5;

/**
 * Returns the seconds until the next delivery: 1 after the first receipt, then more, up to a minute, so that contention
 * does not use up the queue's maximum receive count. For a busy lock, a second more after each receipt: most locks are
 * free soon. Otherwise the delay doubles. Half of the delay is random, so that messages do not come back in step.
 */
export function secondsUntilRetry({ reason, wakeIn }: Retry, receives: number): number {
  if (reason === "unstarted" && receives <= IMMEDIATE_RETRIES) return 0;
  const growing = reason === "busy" ? receives : 2 ** (receives - 1);
  const backoff = Math.min(growing, MAX_BACKOFF);
  const jittered = backoff * (0.5 + Math.random() / 2);
  return Math.min(Math.ceil(Math.max(jittered, wakeIn / 1_000)), MAX_DELAY);
}
