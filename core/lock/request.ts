import type { LockRequest } from "./backend.ts";
import {
  checkName,
  checkSignal,
  describeValue,
  LONGEST_SPAN,
  leftUntil,
  wrongType,
} from "./checks.ts";
import { toMillis } from "./duration.ts";
import { driftMargin } from "./lease.ts";
import type { LockOptions, LockStore, StoreTraits } from "./lock.ts";
import { checkOptionNames, type OptionNames } from "./options.ts";
import type { Millis } from "./time.ts";

/** The most names in one `lockAll`: two operations each stay below the smallest limit of a transaction, 128. */
const MOST_NAMES = 50;

/** How much longer than the invocation its lock is valid: the platform may stop the function late. */
const INVOCATION_SKEW: Millis = 2_000;

/** How long a caller without a `wait` waits for the store. */
const TRY_TIMEOUT: Millis = 2_000;

export type CheckedRequest = Omit<LockRequest, "signal" | "notify">;

/** Throws a TypeError unless the call has options, and a body where it needs one. The message shows an example. */
export function checkCall(call: Call, options: unknown, body?: unknown): void {
  if (typeof options !== "object" || options === null) {
    throw new TypeError(`${call} needs options, such as ${EXAMPLES[call]}`);
  }
  if (call === "withLock" && typeof body !== "function") {
    throw new TypeError(
      `${call} needs a body, such as ${EXAMPLES[call]}; without a body, use lock`,
    );
  }
  checkOptionNames(call, options, call === "release" ? RELEASE_OPTIONS : LOCK_OPTIONS);
}

/** `tryLock` takes the options of a `lock`, whose `wait` does not matter. */
const LOCK_OPTIONS = {
  ttl: true,
  wait: true,
  renew: true,
  deadline: true,
  maxHold: true,
  lockDelay: true,
  signal: true,
  work: false,
} satisfies OptionNames<LockOptions>;

const RELEASE_OPTIONS = { fence: true } satisfies OptionNames<Parameters<LockStore["release"]>[1]>;

type Call = keyof typeof EXAMPLES;

const EXAMPLES = {
  tryLock: 'tryLock("a", { ttl: 10_000 })',
  lock: 'lock("a", { ttl: 10_000, wait: 5_000 })',
  lockAll: 'lockAll(["a"], { ttl: 10_000, wait: 5_000 })',
  release: 'release("a", { fence: "0000000000.00000000000000000042" })',
  withLock: 'withLock("a", { ttl: 10_000, wait: 5_000 }, async (lock) => …)',
} as const;

/** Returns the validated request. Throws a TypeError or RangeError that names the invalid input. */
export function checkRequest(
  names: readonly string[],
  options: LockOptions,
  traits: StoreTraits,
): CheckedRequest {
  const { signal, deadline, renew = true, maxHold = LONGEST_SPAN } = options;
  if (!Array.isArray(names)) {
    throw new TypeError(`lockAll needs a list of names, not ${describeValue(names)}`);
  }
  // Visits holes, too.
  for (const name of names) checkName(name);
  if (names.length === 0 || names.length > MOST_NAMES) {
    throw new RangeError(`lockAll takes 1 to ${MOST_NAMES} names, not ${names.length}`);
  }
  checkSignal(signal);
  if (typeof renew !== "boolean") throw wrongType("renew", "true or false", renew);
  const isEndless = options.wait === Number.POSITIVE_INFINITY;
  if (isEndless && !signal) throw new RangeError("an infinite wait needs a signal");
  const wait = isEndless
    ? Number.POSITIVE_INFINITY
    : toMillis("wait", options.wait, 0, LONGEST_SPAN);
  const lockDelay = toMillis("lockDelay", options.lockDelay ?? 0, 0, LONGEST_SPAN);
  if (lockDelay > 0 && !traits.lockDelay) {
    throw new RangeError(`${traits.name} has no lockDelay`);
  }
  const left = leftUntil(deadline);
  return {
    // Most calls have one name, for which a set takes longer than all of the checks.
    names: names.length > 1 ? [...new Set(names)].sort() : [...names],
    ttl: checkTtl(options, traits),
    renew: renew && options.ttl !== "invocation",
    maxHold:
      maxHold === Number.POSITIVE_INFINITY
        ? maxHold
        : toMillis("maxHold", maxHold, 1, LONGEST_SPAN),
    lockDelay,
    wait: Math.min(wait, left),
    patience: Math.min(wait > 0 ? wait : TRY_TIMEOUT, left),
    deadline,
    work: options.work,
  };
}

/** Returns the ttl, in milliseconds, of locks of Lockstep's own and of those for which the caller names none. */
export function usualTtl({ traits }: Pick<LockStore, "traits">): Millis {
  return Math.max(10_000, traits.minTtl);
}

function checkTtl({ ttl, deadline }: LockOptions, { minTtl }: StoreTraits): Millis {
  if (ttl !== "invocation") {
    return Math.ceil(toMillis("ttl", ttl, minTtl, LONGEST_SPAN));
  }
  if (!deadline) throw new TypeError('the ttl "invocation" needs a deadline');
  const left = Math.max(0, deadline.remaining());
  // With the margin, the lock is provably held until then.
  return Math.min(Math.max(minTtl, left + driftMargin(left) + INVOCATION_SKEW), LONGEST_SPAN);
}
