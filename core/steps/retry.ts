import { hasCode } from "../lock/errors.ts";
import type { Millis } from "../lock/time.ts";
import { type Duration, toMillis } from "./duration.ts";
import { RetryAfterError } from "./errors.ts";

/** Attempts and the pauses between them: `base`, then `factor` times as long each time, up to `max`. */
export interface RetryPolicy {
  /** All of them, the first one included. Default 5. */
  readonly attempts?: number;

  /** Default 200 ms. */
  readonly base?: Duration;

  /** From 1 to 1,000. Default 2. */
  readonly factor?: number;

  /** Default 30 s. */
  readonly max?: Duration;

  /** `full` (default): anything up to the pause; `equal`: half of it and anything up to the other half. */
  readonly jitter?: "full" | "equal" | "none";

  /** Whether to try again at all, and when. */
  readonly retryIf?: (error: unknown, attempt: number) => boolean | { readonly after: Duration };
}

export const ONCE: RetryPolicy = { attempts: 1 };

/** Milliseconds until the next attempt; undefined: there is none. */
export function pauseAfter(
  error: unknown,
  attempt: number,
  policy: RetryPolicy,
): Millis | undefined {
  const { attempts = 5, base = 200, factor = 2, max = 30_000, jitter = "full" } = policy;
  if (attempt >= attempts || isFinal(error)) return undefined;
  const decision = policy.retryIf?.(error, attempt) ?? true;
  if (decision === false) return undefined;
  if (typeof decision === "object") return toMillis("after", decision.after);
  if (error instanceof RetryAfterError) return error.after;
  const pause = Math.min(toMillis("base", base) * factor ** (attempt - 1), toMillis("max", max));
  if (jitter === "none") return pause;
  return jitter === "equal" ? (pause / 2) * (1 + Math.random()) : pause * Math.random();
}

/** Errors say it themselves; but who was late, or lost a lock, comes back with a new one. */
function isFinal(error: unknown): boolean {
  if (hasCode(error, "FENCED_OUT", "LOCK_LOST")) return false;
  return (error as { readonly retryable?: unknown } | undefined)?.retryable === false;
}
