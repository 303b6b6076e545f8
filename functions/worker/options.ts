import { checkWhole } from "../../core/lock/checks.ts";
import { listener } from "../../core/lock/listener.ts";
import type { Millis } from "../../core/lock/time.ts";
import { type Duration, toMillis } from "../../core/steps/duration.ts";
import type { Runtime } from "../../core/steps/runtime.ts";
import type { RunOutcome } from "../../core/steps/workflow.ts";
import type { KeyOf } from "./keys.ts";

export interface WorkerOptions {
  /** Its workflows are what the worker goes on with, each by its version: other runs it leaves alone. */
  readonly runtime: Runtime;

  /** How many runs at a time. Default 8. */
  readonly concurrency?: number;

  /**
   * Of runs with the same key, this worker carries no more than `perKey` at a time: by customer, or by tenant. It
   * is a matter of fairness inside this process. What must not happen twice at a time anywhere is a step's `lock`.
   *
   * The input is read from the journal once more to find the key.
   */
  readonly keyOf?: KeyOf;

  /** Default 1. */
  readonly perKey?: number;

  /** How long steps that are under way may go on once `signal` has aborted. Default 30 s. */
  readonly drain?: Duration;

  /** Ends the worker: it takes no more runs, and parks each run that it has at its next step. */
  readonly signal?: AbortSignal;

  /** Ends it without waiting for steps: they are aborted, and their runs parked. */
  readonly abort?: AbortSignal;

  /** What it throws is lost. */
  readonly onEvent?: (event: WorkerEvent) => void;
}

export type WorkerEvent =
  /** A run was carried as far as it gets here. */
  | { readonly type: "carried"; readonly outcome: RunOutcome<unknown> }
  /** A run could not be carried: its workflow or its record is broken. It is tried again, ever more rarely. */
  | { readonly type: "refused"; readonly runId: string; readonly error: unknown }
  /** The journal does not answer. Said once; the worker goes on asking. */
  | { readonly type: "outage"; readonly error: unknown }
  | { readonly type: "recovered" }
  /** No more runs are taken; so many are under way. */
  | { readonly type: "draining"; readonly running: number }
  /** So many runs were still under way when the time was over. */
  | { readonly type: "aborting"; readonly running: number };

export interface WorkerReport {
  readonly completed: number;
  readonly failed: number;

  /** How often a run was left for later. */
  readonly parked: number;

  /** Every step that was under way could finish, and nothing is held any more. */
  readonly isClean: boolean;
}

export interface CheckedOptions extends Omit<WorkerOptions, "drain"> {
  readonly concurrency: number;
  readonly perKey: number;
  readonly drain: Millis;
  readonly onEvent: (event: WorkerEvent) => void;
}

/** Throws a TypeError or RangeError that names the option. */
export function checkOptions(options: WorkerOptions): CheckedOptions {
  const { concurrency = 8, perKey = 1, drain = 30_000 } = options;
  checkWhole("concurrency", concurrency, 1, 1_000);
  checkWhole("perKey", perKey, 1, 1_000);
  if (options.runtime.workflows.length === 0) {
    throw new TypeError("the worker's runtime knows no workflows");
  }
  const onEvent = listener(options.onEvent);
  return { ...options, concurrency, perKey, drain: toMillis("drain", drain), onEvent };
}
