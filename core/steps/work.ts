import { checkName, checkWhole } from "../lock/checks.ts";
import type { Millis } from "../lock/time.ts";
import { hashOf } from "./codec.ts";
import { toMillis } from "./duration.ts";
import { checkStepName } from "./history.ts";
import { ONCE, type RetryPolicy } from "./retry.ts";
import type { Schema } from "./schema.ts";
import type { AtMostOnce, Locked, LockRequest, StepOptions, TxScope } from "./workflow.ts";

/** A step, with everything about it checked. */
export interface Work {
  /** As the workflow's code calls it: the same for all items of a map. */
  readonly name: string;
  readonly key: string;
  readonly kind: "step" | "tx" | "undo";

  /** Whether it runs in a transaction of the journal's database. */
  readonly transacted: boolean;
  readonly retry: RetryPolicy;
  readonly timeout: Millis;
  readonly budget: Millis;
  readonly atMostOnce: boolean;
  readonly lock: CheckedLock | undefined;
  readonly argsHash: string | undefined;
  readonly output: Schema | undefined;

  /** It is given as much of the scope as its options entitle it to. */
  readonly fn: (scope: TxScope) => Promise<unknown>;
  readonly undo: ((result: unknown, scope: TxScope) => Promise<unknown>) | undefined;
}

export interface CheckedLock {
  /** Each once, in the order in which they were given: the first one's fence is the step's. */
  readonly names: readonly string[];
  readonly ttl: Millis | undefined;
  readonly wait: Millis;
  readonly onBusy: NonNullable<LockRequest["onBusy"]>;
}

/** A step's options, as any of the overloads may have them. */
export type AnyOptions = StepOptions<unknown> & Partial<AtMostOnce & Locked>;

export type Functions = Pick<Work, "fn" | "undo">;

/** Throws a TypeError or RangeError that names the step and the option. */
export function toWork(
  { name, key }: Pick<Work, "name" | "key">,
  kind: "step" | "tx",
  options: AnyOptions,
  { fn, undo }: Functions,
): Work {
  const { retry, timeout, budget, semantics, lock, args, output } = options;
  if (typeof fn !== "function") throw new TypeError(`step ${key} needs a function`);
  if (kind === "tx" && lock === undefined) throw new TypeError(`step.tx ${key} needs a lock`);
  const atMostOnce = semantics === "at-most-once";
  const limit = timeout === undefined ? Number.POSITIVE_INFINITY : toMillis("timeout", timeout, 1);
  return {
    name,
    key,
    kind,
    transacted: kind === "tx",
    retry: toPolicy(retry, atMostOnce),
    timeout: limit,
    budget: budget === undefined ? finiteOr(limit, 0) : toMillis("budget", budget),
    atMostOnce,
    lock: lock === undefined ? undefined : toLock(lock),
    argsHash: args === undefined ? undefined : hashOf(args),
    output,
    fn,
    undo,
  };
}

/** The step that takes back what another has done. */
export function toUndo(work: Work, result: unknown): Work {
  return {
    ...work,
    key: undoKey(work.key),
    kind: "undo",
    retry: work.atMostOnce ? {} : work.retry,
    atMostOnce: false,
    argsHash: undefined,
    output: undefined,
    fn: async (scope) => work.undo?.(result, scope),
    undo: undefined,
  };
}

export function undoKey(key: string): string {
  return `~undo/${key}`;
}

function toPolicy(retry: RetryPolicy | false | undefined, atMostOnce: boolean): RetryPolicy {
  if (retry === false || (retry === undefined && atMostOnce)) return ONCE;
  const policy = retry ?? {};
  const { attempts, base, max, factor } = policy;
  if (attempts !== undefined) checkWhole("attempts", attempts, 1, 10_000);
  if (base !== undefined) toMillis("base", base);
  if (max !== undefined) toMillis("max", max);
  if (factor !== undefined && !(factor >= 1 && factor <= 1_000)) {
    throw new RangeError(`factor must be a number from 1 to 1000, not ${factor}`);
  }
  return policy;
}

function toLock(lock: Locked["lock"]): CheckedLock {
  const request: LockRequest =
    typeof lock === "string" || isNames(lock) ? { names: lock } : (lock as LockRequest);
  const { names, ttl, wait = 10_000, onBusy = "wait" } = request;
  const list = typeof names === "string" ? [names] : [...new Set(names)];
  if (list.length === 0) throw new RangeError("a lock needs a name");
  list.forEach(checkName);
  return {
    names: list,
    ttl: ttl === undefined ? undefined : toMillis("ttl", ttl, 1),
    wait: onBusy === "suspend" ? 0 : toMillis("wait", wait),
    onBusy,
  };
}

function isNames(lock: Locked["lock"]): lock is readonly string[] {
  return Array.isArray(lock);
}

function finiteOr(span: Millis, other: Millis): Millis {
  return Number.isFinite(span) ? span : other;
}

/** Throws unless the items can be told apart. */
export function checkItemKeys(name: string, keys: readonly string[]): void {
  const seen = new Set<string>();
  for (const key of keys) {
    checkStepName(`keyOf of ${name}`, key);
    if (seen.has(key)) throw new RangeError(`two items of ${name} have the key ${key}`);
    seen.add(key);
  }
}
