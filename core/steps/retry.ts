import { checkFunction, checkOneOf, checkWhole, wrongType } from "../lock/checks.ts";
import { type Duration, toMillis } from "../lock/duration.ts";
import { hasCode } from "../lock/errors.ts";
import { checkOptionNames, type OptionNames } from "../lock/options.ts";
import type { Millis } from "../lock/time.ts";
import { RetryAfterError } from "./errors.ts";

/**
 * Attempts and the pauses between them: the first pause is `base`, each further one `factor` times as long.
 *
 * The defaults outlast a deploy of the other side: all pauses together take 6 minutes at least, 12 at most.
 */
export interface RetryPolicy {
  /** The number of attempts, the first one included. Default 32. */
  readonly attempts?: number;

  /** Default 200 ms. */
  readonly base?: Duration;

  /** From 1 to 1,000. Default 2. */
  readonly factor?: number;

  /** The longest pause. Default 30 s. */
  readonly max?: Duration;

  /** `equal` (default): random from half of the pause to all of it. `full`: random from 0 to the pause. */
  readonly jitter?: "full" | "equal" | "none";

  /** Whether to retry after this error, and when. */
  readonly retryIf?: (error: unknown, attempt: number) => boolean | { readonly after: Duration };
}

const POLICY = {
  attempts: true,
  base: true,
  factor: true,
  max: true,
  jitter: true,
  retryIf: true,
} satisfies OptionNames<RetryPolicy>;

export const ONCE: RetryPolicy = { attempts: 1 };

/** Returns the milliseconds until the next attempt, or undefined if this attempt is the last one. */
export function retryDelay(
  error: unknown,
  attempt: number,
  policy: RetryPolicy,
): Millis | undefined {
  const { attempts = 32, base = 200, factor = 2, max = 30_000, jitter = "equal" } = policy;
  if (attempt >= attempts || isTerminal(error)) return undefined;
  const decision = policy.retryIf?.(error, attempt) ?? true;
  if (decision === false) return undefined;
  if (typeof decision === "object") return toMillis("after", decision.after);
  if (error instanceof RetryAfterError) return error.after;
  const pause = Math.min(toMillis("base", base) * factor ** (attempt - 1), toMillis("max", max));
  if (jitter === "none") return pause;
  return jitter === "equal" ? (pause / 2) * (1 + Math.random()) : pause * Math.random();
}

/** Errors say so themselves, except for lost locks and late fences: the next attempt has new ones. */
function isTerminal(error: unknown): boolean {
  if (hasCode(error, "FENCED_OUT", "LOCK_LOST")) return false;
  return (error as { readonly retryable?: unknown } | undefined)?.retryable === false;
}

/** Returns the policy, with `defaults` where it leaves something out. Throws a TypeError or RangeError that names the option. */
export function toPolicy(
  retry: RetryPolicy | false | undefined,
  { atMostOnce = false, defaults = {} }: { atMostOnce?: boolean; defaults?: RetryPolicy },
): RetryPolicy {
  if (retry === false || (retry === undefined && atMostOnce)) return ONCE;
  const policy = retry === undefined ? {} : retry;
  if (typeof policy !== "object" || policy === null) {
    throw wrongType("retry", "a policy such as { attempts: 5 }, or false", policy);
  }
  checkOptionNames("retry", policy, POLICY);
  const { attempts, base, max, factor, jitter, retryIf } = policy;
  if (attempts !== undefined) checkWhole("attempts", attempts, 1, 10_000);
  if (base !== undefined) toMillis("base", base);
  if (max !== undefined) toMillis("max", max);
  if (factor !== undefined && !(factor >= 1 && factor <= 1_000)) {
    throw new RangeError(`factor must be a number from 1 to 1000, not ${factor}`);
  }
  if (jitter !== undefined) checkOneOf("jitter", jitter, ["full", "equal", "none"]);
  if (retryIf !== undefined) checkFunction("retryIf", retryIf);
  const given = Object.entries(policy).filter(([, value]) => value !== undefined);
  return { ...defaults, ...Object.fromEntries(given) };
}
