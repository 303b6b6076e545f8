import type { LockRequest } from "./backend.ts";
import { checkName, checkSpan, LONGEST_SPAN } from "./checks.ts";
import { margin } from "./life.ts";
import type { LockOptions, StoreTraits } from "./lock.ts";
import type { Millis } from "./time.ts";

/** The most names in one `lockAll`: two operations each stay below etcd's 128 in a transaction. */
const MOST_NAMES = 50;

/** By how much a lock outlives the invocation it was taken for: the platform's kill may come late. */
const INVOCATION_SKEW: Millis = 2_000;

export type CheckedRequest = Omit<LockRequest, "signal" | "notify">;

/** The request that the user's input stands for. Throws a TypeError or RangeError that names the input. */
export function checkRequest(
  names: readonly string[],
  options: LockOptions,
  traits: StoreTraits,
): CheckedRequest {
  const { wait, signal, deadline, renew = true, maxHold = LONGEST_SPAN, lockDelay = 0 } = options;
  names.forEach(checkName);
  if (names.length === 0 || names.length > MOST_NAMES) {
    throw new RangeError(`lockAll takes 1 to ${MOST_NAMES} names, not ${names.length}`);
  }
  if (wait !== Number.POSITIVE_INFINITY) checkSpan("wait", wait, 0);
  else if (!signal) throw new RangeError("wait must not be infinite without a signal to end it");
  checkSpan("maxHold", maxHold, 1);
  checkSpan("lockDelay", lockDelay, 0);
  if (lockDelay > 0 && !traits.lockDelay) {
    throw new RangeError(`lockDelay is not offered by ${traits.name}`);
  }
  return {
    names: [...new Set(names)].sort(),
    ttl: checkTtl(options, traits),
    renew: renew && options.ttl !== "invocation",
    maxHold,
    lockDelay,
    wait: deadline ? Math.min(wait, deadline.remaining()) : wait,
  };
}

function checkTtl({ ttl, deadline }: LockOptions, { minTtl }: StoreTraits): Millis {
  if (ttl !== "invocation") {
    checkSpan("ttl", ttl, minTtl);
    return Math.ceil(ttl);
  }
  if (!deadline) throw new TypeError('the ttl "invocation" needs a deadline');
  const left = Math.max(0, deadline.remaining());
  // With the margin, it is not only held until then, but provably so.
  return Math.min(Math.max(minTtl, left + margin(left) + INVOCATION_SKEW), LONGEST_SPAN);
}
