import { checkFunction, checkName, checkOneOf, LONGEST_SPAN } from "../lock/checks.ts";
import { toMillis } from "../lock/duration.ts";
import { checkOptionNames, type OptionNames } from "../lock/options.ts";
import type { Millis } from "../lock/time.ts";
import { hashOf } from "./codec.ts";
import { type RetryPolicy, toPolicy } from "./retry.ts";
import { checkSchema, type Schema } from "./schema.ts";
import type {
  Locked,
  MapOptions,
  StepLock,
  StepOptions,
  TxScope,
  UndoneStep,
} from "./step-options.ts";

/** A step, or the undo of one, with checked options. */
export interface Step {
  /** The name in the workflow's code: the same for all items of a map. */
  readonly name: string;
  readonly key: string;
  readonly kind: "step" | "tx" | "undo";

  /** Whether the step runs in a transaction of the journal's database. */
  readonly transacted: boolean;
  readonly retry: RetryPolicy;
  readonly timeout: Millis;
  readonly budget: Millis;
  readonly atMostOnce: boolean;

  /** Whether the step changes nothing outside. */
  readonly readOnly: boolean;
  readonly lock: CheckedLock | undefined;
  readonly argsHash: string | undefined;
  readonly output: Schema | undefined;

  /** Called with the part of the scope that the step's options provide. */
  readonly fn: (scope: TxScope) => Promise<unknown>;
  readonly undo: ((result: unknown, scope: TxScope & UndoneStep) => Promise<unknown>) | undefined;
}

export interface CheckedLock {
  /** Distinct, in the given order: the first one's fence is the step's. */
  readonly names: readonly string[];
  readonly ttl: Millis | undefined;
  readonly wait: Millis;
  readonly onBusy: NonNullable<StepLock["onBusy"]>;
}

/** The options of all overloads of a step. */
export type AnyStepOptions = StepOptions<unknown> & Partial<Locked>;

export type StepFunctions = Pick<Step, "fn" | "undo">;

const STEP_OPTIONS = {
  retry: true,
  timeout: true,
  budget: true,
  key: true,
  args: true,
  output: true,
  semantics: true,
  effect: true,
  lock: true,
} satisfies OptionNames<AnyStepOptions>;

/** The members of `MapOptions`: each item is a step, with the same options. */
export const MAP_OPTIONS = {
  ...STEP_OPTIONS,
  keyOf: true,
  concurrency: true,
  onError: true,
} satisfies OptionNames<MapOptions<unknown, unknown> & AnyStepOptions>;

const LOCK_OPTIONS = {
  names: true,
  ttl: true,
  wait: true,
  onBusy: true,
} satisfies OptionNames<StepLock>;

/** Throws an error that names the step and the option. */
export function toStep(
  names: Pick<Step, "name" | "key">,
  kind: "step" | "tx",
  options: AnyStepOptions,
  functions: StepFunctions,
): Step {
  return naming(`step ${names.key}`, () => checkedStep(names, kind, options, functions));
}

/** Puts `what` before the messages of the errors that `check` throws. */
export function naming<T>(what: string, check: () => T): T {
  try {
    return check();
  } catch (error) {
    (error as Error).message = `${what}: ${(error as Error).message}`;
    throw error;
  }
}

function checkedStep(
  { name, key }: Pick<Step, "name" | "key">,
  kind: "step" | "tx",
  options: AnyStepOptions,
  { fn, undo }: StepFunctions,
): Step {
  checkOptionNames("step", options, STEP_OPTIONS);
  const { retry, timeout, budget, semantics, lock, args, output, effect } = options;
  checkFunction("its function", fn);
  if (undo !== undefined) checkFunction("its undo", undo);
  if (output !== undefined) checkSchema("output", output);
  if (semantics !== undefined) checkOneOf("semantics", semantics, ["at-most-once"]);
  if (effect !== undefined) checkOneOf("effect", effect, ["none"]);
  if (kind === "tx" && lock === undefined) throw new TypeError("step.tx needs a lock");
  const atMostOnce = semantics === "at-most-once";
  const limit = timeout === undefined ? Number.POSITIVE_INFINITY : toMillis("timeout", timeout, 1);
  return {
    name,
    key,
    kind,
    transacted: kind === "tx",
    retry: toPolicy(retry, { atMostOnce }),
    timeout: limit,
    budget: budget === undefined ? finiteOr(limit, 0) : toMillis("budget", budget),
    atMostOnce,
    readOnly: effect === "none",
    lock: lock === undefined ? undefined : toLock(lock),
    argsHash: args === undefined ? undefined : hashOfArgs(args),
    output,
    fn,
    undo,
  };
}

/** Returns the step that calls the undo of `step`. That the step is tried once, or not under a busy lock, says nothing of its undo. */
export function toUndo(step: Step, result: unknown, about: UndoneStep): Step {
  const isOnce = step.atMostOnce || step.retry.attempts === 1;
  return {
    ...step,
    key: `~undo/${step.key}`,
    kind: "undo",
    retry: isOnce ? {} : step.retry,
    lock: step.lock?.onBusy === "fail" ? { ...step.lock, onBusy: "wait" } : step.lock,
    atMostOnce: false,
    argsHash: undefined,
    output: undefined,
    fn: async (scope) => step.undo?.(result, { ...scope, ...about }),
    undo: undefined,
  };
}

/** Throws a TypeError for a value that has no hash: a wrong option, as any other one. */
function hashOfArgs(args: unknown): string {
  try {
    return hashOf(args, "args");
  } catch (error) {
    throw new TypeError((error as Error).message);
  }
}

function toLock(lock: Locked["lock"]): CheckedLock {
  const request: StepLock =
    typeof lock === "string" || isNames(lock) ? { names: lock } : (lock as StepLock);
  checkOptionNames("lock", request, LOCK_OPTIONS);
  const { names, ttl, wait = 10_000, onBusy = "wait" } = request;
  const list = typeof names === "string" ? [names] : [...new Set(names)];
  if (list.length === 0) throw new RangeError("a lock needs at least one name");
  list.forEach(checkName);
  checkOneOf("onBusy", onBusy, ["wait", "suspend", "fail"]);
  return {
    names: list,
    ttl: ttl === undefined ? undefined : toMillis("ttl", ttl, 1, LONGEST_SPAN),
    wait: onBusy === "suspend" ? 0 : toMillis("wait", wait, 0, LONGEST_SPAN),
    onBusy,
  };
}

function isNames(lock: Locked["lock"]): lock is readonly string[] {
  return Array.isArray(lock);
}

function finiteOr(span: Millis, other: Millis): Millis {
  return Number.isFinite(span) ? span : other;
}
