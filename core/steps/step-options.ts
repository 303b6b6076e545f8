import type { Transaction } from "../database/sql.ts";
import type { Duration } from "../lock/duration.ts";
import type { Fence } from "../lock/fence.ts";
import type { Held } from "../lock/lock.ts";
import type { Deadline } from "../lock/time.ts";
import type { RetryPolicy } from "./retry.ts";
import type { Schema } from "./schema.ts";

export interface CollectErrors {
  readonly onError: "collect";
}

export interface ItemLock<I> {
  /** The lock of each item's step. */
  readonly lock: (item: I) => Locked["lock"];
}

/**
 * Takes the effect of a step back. It is the last argument, so that its type follows from the step's result.
 *
 * Called for steps that are done, and for steps that may be: `result` is undefined unless `scope.outcome` is `done`.
 */
export type Undo<T, Scope = StepScope> = (result: T, scope: Scope & UndoneStep) => Promise<unknown>;

/** The step that an undo takes back. */
export interface UndoneStep {
  /**
   * `done`: the step's result is recorded. `unknown`: an attempt began, and none succeeded, as far as the journal knows:
   * it failed, took too long, returned a value that could not be recorded, or its process died.
   */
  readonly outcome: "done" | "unknown";

  /** The key that the step's attempts had: ask the other system with it whether the step had its effect. */
  readonly stepIdempotencyKey: string;
}

export interface StepOptions<T> {
  /** The attempts and the pauses between them. `false`: one attempt. */
  readonly retry?: RetryPolicy | false;

  /** The longest duration of one attempt. Default no limit. */
  readonly timeout?: Duration;

  /** The run is parked instead of an attempt if the invocation ends sooner than this. Default `timeout`. */
  readonly budget?: Duration;

  /** The step's key in the journal. Default: the name, and "#2" and so on when the name is used again. */
  readonly key?: string;

  /** The step's arguments. The run fails if they differ in a replay. */
  readonly args?: unknown;

  /** Validates the result before it is recorded. */
  readonly output?: Schema<unknown, T>;

  /**
   * Records the start of each attempt, which is not started twice: an interrupted step fails with the code
   * STEP_INTERRUPTED. Without `retry`, the step has one attempt.
   */
  readonly semantics?: "at-most-once";

  /** `none`: the step changes nothing outside, so that there is nothing to undo after a failed attempt. */
  readonly effect?: "none";
}

export interface Locked {
  /** One name, several names, which are locked together, or names with options. */
  readonly lock: string | readonly string[] | StepLock;
}

/** The locks of a step, with options. */
export interface StepLock {
  readonly names: string | readonly string[];

  /** How long the store keeps the lock after the last renewal. Default 10 s. */
  readonly ttl?: Duration;

  /**
   * The longest wait for the lock. Default 10 s, or the rest of the invocation if that is less. Unless `onBusy` is `fail`,
   * a worker waits 50 ms at the most, and a short-lived function as long as its `lockWait`, by default not at all.
   */
  readonly wait?: Duration;

  /**
   * After the wait, `wait` (default) parks the run until it tries again, and `fail` fails the step with the code
   * LOCK_TIMEOUT. `suspend` parks the run without a wait. A busy lock does not count as an attempt.
   */
  readonly onBusy?: "wait" | "suspend" | "fail";
}

export interface MapOptions<I, T> extends StepOptions<T> {
  /** Returns a key of 1 to 200 bytes, distinct for each item: it identifies the item in a replay. */
  readonly keyOf: (item: I) => string;

  /** The number of items in progress at a time. Default 8. */
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
   * The same for each attempt of this step of this run, and for no other step: pass it to systems that recognise a
   * repetition by such a key. A later run that reuses the id, after the outcome was purged, has the same keys. The key
   * is `RUN/STEP`, with "/" and "%" in the step's key escaped, or a hash of the two if that is longer than 255 bytes: run
   * `a` with step `b/c` has `a/b%2Fc`, and run `a/b` with step `c` has `a/b/c`.
   */
  readonly idempotencyKey: string;

  /** Aborts when the attempt times out, the lock is lost, or the execution stops. Pass it to all calls of the step. */
  readonly signal: AbortSignal;
  readonly deadline: Deadline;
}

export interface LockedScope extends StepScope {
  readonly lock: Held;

  /** The fence of the first name. */
  readonly fence: Fence;

  /** The fences by name. */
  readonly fences: ReadonlyMap<string, Fence>;
}

export interface TxScope extends LockedScope {
  /** The transaction. The engine commits it together with the step's record. */
  readonly tx: Pick<Transaction, "batch">;
}
