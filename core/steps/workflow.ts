import type { Transaction } from "../database/sql.ts";
import { checkText, checkWhole } from "../lock/checks.ts";
import type { Fence } from "../lock/fence.ts";
import type { Held } from "../lock/lock.ts";
import type { Deadline, Millis } from "../lock/time.ts";
import { hashOf } from "./codec.ts";
import { type Duration, toMillis } from "./duration.ts";
import type { RetryPolicy } from "./retry.ts";
import { type InputOf, type OutputOf, type Schema, validate } from "./schema.ts";

export interface WorkflowDefinition<S extends Schema> {
  /** 1 to 255 bytes. */
  readonly name: string;

  /** A whole number from 1. A run goes on with the version that it was begun with. */
  readonly version: number;
  readonly input: S;

  /** The run's id, 1 to 255 bytes: the same order is placed once. Default: a random one. */
  readonly id?: (input: OutputOf<S>) => string;

  /** What must not differ when the id comes again. Default: the whole input. */
  readonly fingerprint?: (input: OutputOf<S>) => unknown;

  /** Where it does differ: reject with an InputConflictError (default), or answer with the run that is there. */
  readonly onConflict?: "reject" | "return-existing";

  /** How long the outcome is kept after the end, and with it the memory of the id. Default a day. */
  readonly keep?: Duration;

  /** After how long the run is given up and undone, from its start, at its next step. Default never. */
  readonly timeout?: Duration;

  /** How many processes in a row may be lost over one run before it is given up. Default 20. */
  readonly maxCrashes?: number;
}

/** A program that is carried out once per run, however many processes that takes. Made by `workflow`. */
export interface Workflow<Input, Output> {
  readonly name: string;
  readonly version: number;

  /** Whether the input says what run it is for; otherwise every run without an id of its own is a new one. */
  readonly namesRuns: boolean;

  /** How long an ended run is kept. */
  readonly keep: Millis;

  /** Infinity: for ever. */
  readonly timeout: Millis;
  readonly maxCrashes: number;

  /** Checks the input, and says what run it is for. Rejects with an InvalidValueError. */
  prepare(input: Input, id?: string): Promise<Prepared>;

  /** `input` is as `prepare` has made it. */
  run(ctx: WorkflowContext, input: unknown): Promise<Output>;
}

export interface Prepared {
  readonly runId: string;
  readonly input: unknown;
  readonly inputHash: string;
  readonly onConflict: "reject" | "return-existing";
}

/** Any of them: nothing is put in or taken out but by its own code. */
export type AnyWorkflow = Workflow<never, unknown>;

const DAY: Millis = 86_400_000;

/**
 * The body runs again from its start whenever the run is taken up again, and steps that are done answer from the
 * journal. So whatever it does besides must be the same every time: the time, chance and the outside world belong
 * into steps. What it awaits besides them must be short.
 *
 * Where the run is parked, the body just does not go on: its `finally` blocks do not run, and what it holds by
 * `using` is not disposed. What needs that belongs into a step as well.
 */
export function workflow<S extends Schema, Output>(
  definition: WorkflowDefinition<S>,
  body: (ctx: WorkflowContext, input: OutputOf<S>) => Promise<Output>,
): Workflow<InputOf<S>, Output> {
  const { name, version, keep = DAY, timeout, maxCrashes = 20, onConflict = "reject" } = definition;
  checkText("workflow name", name, 255);
  checkWhole("version", version, 1, 2 ** 31 - 1);
  checkWhole("maxCrashes", maxCrashes, 1, 1_000);
  return {
    name,
    version,
    namesRuns: definition.id !== undefined,
    keep: toMillis("keep", keep),
    timeout: timeout === undefined ? Number.POSITIVE_INFINITY : toMillis("timeout", timeout, 1),
    maxCrashes,
    async prepare(raw, id) {
      const input = await validate(`the input of ${name}`, definition.input, raw);
      const runId = id ?? definition.id?.(input) ?? crypto.randomUUID();
      checkText("run id", runId, 255);
      const inputHash = hashOf(definition.fingerprint ? definition.fingerprint(input) : input);
      return { runId, input, inputHash, onConflict };
    },
    run: (ctx, input) => body(ctx, input as OutputOf<S>),
  };
}

export interface WorkflowContext {
  readonly runId: string;

  /** Of the invocation that carries the run at the moment. */
  readonly deadline: Deadline;
  readonly step: StepFunction;

  /** The time when it was first asked for. */
  now(): Promise<Date>;

  /** From 0 to less than 1. */
  random(): Promise<number>;
  uuid(): Promise<string>;

  /** Holds nothing meanwhile: no lock, and no process unless it is short. */
  sleep(name: string, span: Duration): Promise<void>;

  /**
   * The payload of the run's next signal of this name that no earlier call has had. Fails with the code INVALID
   * when it is not as the schema wants.
   */
  waitFor<S extends Schema>(signal: string, schema: S): Promise<OutputOf<S>>;
  waitFor<S extends Schema>(
    signal: string,
    schema: S,
    options: { readonly timeout: Duration },
  ): Promise<OutputOf<S> | TimedOut>;

  /**
   * Runs another workflow as a run of its own, and answers with its output. It goes on, and is not undone, where this
   * run is cancelled or fails.
   */
  child<I, O>(name: string, workflow: Workflow<I, O>, input: I, options?: ChildOptions): Promise<O>;

  /**
   * For a change of a workflow's code under its runs: true in runs that had not got here before the change, and so
   * for the rest of their life.
   */
  patched(id: string): Promise<boolean>;
}

export interface TimedOut {
  readonly timedOut: true;
}

export interface ChildOptions {
  /** Default: the id of the parent's run, "/" and the name; a hash of them where that is too long. */
  readonly id?: string;
}

/**
 * Does one thing of the workflow, once its answer is in the journal. `undo` is called when the run fails later.
 *
 * - `step(name, fn)`: at least once; `idempotencyKey` lets others tell a repetition.
 * - `step(name, { lock }, fn)`: under a lock, with its fence for the resource to check.
 * - `step.tx(name, { lock }, fn)`: what it does in the journal's database happens exactly once.
 * - `step.map(name, items, { keyOf }, fn)`: one step for each item, some of them at a time.
 */
export interface StepFunction {
  <T>(name: string, fn: (scope: StepScope) => Promise<T>, undo?: Undo<T>): Promise<T>;

  <T>(
    name: string,
    options: StepOptions<T> & AtMostOnce & Locked,
    fn: (scope: LockedScope) => Promise<T>,
    undo?: Undo<T | undefined, LockedScope>,
  ): Promise<T>;

  <T>(
    name: string,
    options: StepOptions<T> & AtMostOnce & { readonly lock?: never },
    fn: (scope: StepScope) => Promise<T>,
    undo?: Undo<T | undefined>,
  ): Promise<T>;

  <T>(
    name: string,
    options: StepOptions<T> & Locked,
    fn: (scope: LockedScope) => Promise<T>,
    undo?: Undo<T, LockedScope>,
  ): Promise<T>;

  <T>(
    name: string,
    options: StepOptions<T> & { readonly lock?: never },
    fn: (scope: StepScope) => Promise<T>,
    undo?: Undo<T>,
  ): Promise<T>;

  /** All of it, the step's record and the check of its fences are one transaction. */
  tx<T>(
    name: string,
    options: StepOptions<T> & Locked,
    fn: (scope: TxScope) => Promise<T>,
    undo?: Undo<T, TxScope>,
  ): Promise<T>;

  readonly map: MapFunction;
}

/**
 * Fails as soon as one item has failed for good, and begins no others then; with `onError: "collect"` it answers
 * with what became of each.
 */
export interface MapFunction {
  <I, T>(
    name: string,
    items: readonly I[],
    options: MapOptions<I, T> & Collecting & LockedItems<I>,
    fn: (item: I, scope: LockedScope) => Promise<T>,
    undo?: Undo<T, LockedScope>,
  ): Promise<readonly PromiseSettledResult<T>[]>;

  <I, T>(
    name: string,
    items: readonly I[],
    options: MapOptions<I, T> & Collecting & { readonly lock?: never },
    fn: (item: I, scope: StepScope) => Promise<T>,
    undo?: Undo<T>,
  ): Promise<readonly PromiseSettledResult<T>[]>;

  <I, T>(
    name: string,
    items: readonly I[],
    options: MapOptions<I, T> & LockedItems<I>,
    fn: (item: I, scope: LockedScope) => Promise<T>,
    undo?: Undo<T, LockedScope>,
  ): Promise<readonly T[]>;

  <I, T>(
    name: string,
    items: readonly I[],
    options: MapOptions<I, T> & { readonly lock?: never },
    fn: (item: I, scope: StepScope) => Promise<T>,
    undo?: Undo<T>,
  ): Promise<readonly T[]>;
}

export interface Collecting {
  readonly onError: "collect";
}

export interface LockedItems<I> {
  /** The lock of each item's step. */
  readonly lock: (item: I) => Locked["lock"];
}

/** Last of the arguments, so that its types follow from the step's result. */
export type Undo<T, Scope = StepScope> = (result: T, scope: Scope) => Promise<unknown>;

export interface StepOptions<T> {
  /** What to do when an attempt fails. `false`: the first failure is the last. */
  readonly retry?: RetryPolicy | false;

  /** The longest that one attempt may take. Default: as long as it wants. */
  readonly timeout?: Duration;

  /** How much of the invocation must be left to begin an attempt; the run is parked otherwise. Default `timeout`. */
  readonly budget?: Duration;

  /** The step's key in the journal. Default: its name, and "#2" and so on when the name comes again. */
  readonly key?: string;

  /** What the step works on. The run fails if it differs when the step is replayed. */
  readonly args?: unknown;

  /** Checks the result before it is written. */
  readonly output?: Schema<unknown, T>;
}

export interface AtMostOnce {
  /**
   * Takes note before it begins, and never begins twice: a step found begun fails with the code STEP_INTERRUPTED,
   * and its `undo` is called with undefined. There is no second attempt unless `retry` says so.
   */
  readonly semantics: "at-most-once";
}

export interface Locked {
  /** One name, several, or all about it. Several are taken together. */
  readonly lock: string | readonly string[] | LockRequest;
}

export interface LockRequest {
  readonly names: string | readonly string[];

  /** How long the store keeps the lock for a holder that it has stopped hearing from. Default 10 s. */
  readonly ttl?: Duration;

  /** How long to stand in line. Default 10 s, or what is left of the invocation. */
  readonly wait?: Duration;

  /**
   * What to do then: park the run and come back (default; `suspend` does so without standing in line), or fail the
   * step with the code LOCK_TIMEOUT. It is no failed attempt.
   */
  readonly onBusy?: "wait" | "suspend" | "fail";
}

export interface MapOptions<I, T> extends StepOptions<T> {
  /** Distinct for each item, 1 to 200 bytes: items are known by it when the run is resumed. */
  readonly keyOf: (item: I) => string;

  /** How many at a time. Default 8. */
  readonly concurrency?: number;
  readonly onError?: "fail-fast" | "collect";
  readonly key?: never;
}

export interface StepScope {
  readonly runId: string;

  /** The step's key in the journal. */
  readonly key: string;

  /** From 1. */
  readonly attempt: number;

  /**
   * The same for every attempt at this step of this run, and for no other: give it to whoever can tell a repetition by it.
   * A run that bears the id again, after the outcome was forgotten, has the same ones.
   */
  readonly idempotencyKey: string;

  /** Aborts when the attempt is over its time, or the run or the lock is lost. Pass it to all that the step does. */
  readonly signal: AbortSignal;
  readonly deadline: Deadline;
}

export interface LockedScope extends StepScope {
  readonly lock: Held;

  /** Of the first name. */
  readonly fence: Fence;

  /** By name. */
  readonly fences: ReadonlyMap<string, Fence>;
}

export interface TxScope extends LockedScope {
  /** Its `commit` is not for the step: the engine commits, with the step's record. */
  readonly tx: Pick<Transaction, "packet">;
}

/** How a drive of a run went. */
export type RunOutcome<Output> = { readonly runId: string } & (
  | { readonly status: "completed"; readonly output: Output }
  | {
      readonly status: "failed";
      readonly error: RunError;
      /** Whether everything that was to be undone is undone. */
      readonly compensated: boolean;
    }
  /** It goes on after `wakeIn` milliseconds, or when a signal comes; Infinity: only then. */
  | { readonly status: "suspended"; readonly reason: SuspendReason; readonly wakeIn: Millis }
  /** Somebody else carries it. */
  | { readonly status: "busy"; readonly retryIn: Millis }
);

export interface RunError {
  readonly name: string;
  readonly message: string;
  readonly code?: string | undefined;
  readonly data?: unknown;
}

export type SuspendReason = "sleep" | "signal" | "deadline" | "lock-busy" | "retry-delay" | "child";
