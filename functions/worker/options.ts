import { checkSignal, checkText, checkWhole, wrongType } from "../../core/lock/checks.ts";
import { type Duration, toMillis } from "../../core/lock/duration.ts";
import { listener } from "../../core/lock/listener.ts";
import { checkOptionNames, type OptionNames } from "../../core/lock/options.ts";
import type { Millis } from "../../core/lock/time.ts";
import type { Runtime } from "../../core/steps/contract.ts";
import type { RunOutcome } from "../../core/steps/workflow.ts";

export interface WorkerOptions {
  /** The worker executes the runs of the runtime's workflows and versions, and no others. */
  readonly runtime: Runtime;

  /** The number of concurrent runs. Default 8. */
  readonly concurrency?: number | undefined;

  /** The queues whose runs the worker executes. Default: those of the workflows, and "default". */
  readonly queues?: readonly string[];

  /** The time that running steps have after `signal` has aborted. Default 30 s. */
  readonly drain?: Duration | undefined;

  /** Stops the worker gracefully: it takes no more runs, and parks each of its runs at the next step. */
  readonly signal?: AbortSignal | undefined;

  /** Stops the worker at once: running steps are aborted, and their runs parked. */
  readonly abort?: AbortSignal | undefined;

  /** Errors of the listener are ignored. */
  readonly onEvent?: (event: WorkerEvent) => void;
}

const OPTIONS = {
  runtime: true,
  concurrency: true,
  queues: true,
  drain: true,
  signal: true,
  abort: true,
  onEvent: true,
} satisfies OptionNames<WorkerOptions>;

export type WorkerEvent =
  /** A run was executed until it ended or parked. */
  | { readonly type: "executed"; readonly outcome: RunOutcome<unknown> }
  /**
   * A run could not be executed because of its workflow or its record: it is due again after its lease. Or the slot of a
   * schedule has no valid input, or the schedule of the workflow that `runId` names could not be read or moved: it is
   * tried again within a minute.
   */
  | { readonly type: "refused"; readonly runId: string; readonly error: unknown }
  /**
   * The operations of entities could not be handled, or the schedules not be looked at, although the journal answers. For
   * operations that is reported once, until they can be handled again. The worker tries again.
   */
  | {
      readonly type: "failed";
      readonly what: "entities" | "schedules";
      readonly error: unknown;
    }
  /** The journal does not answer. Reported once per outage; the worker keeps polling. */
  | { readonly type: "outage"; readonly error: unknown }
  | { readonly type: "recovered" }
  /** The worker stops taking runs; `running` runs are active. */
  | { readonly type: "draining"; readonly running: number }
  /** The time to drain is over; `running` runs are aborted. */
  | { readonly type: "aborting"; readonly running: number };

export interface WorkerReport {
  readonly completed: number;
  readonly failed: number;

  /** The number of times that a run was parked. */
  readonly parked: number;

  /** The number of times that a run could not be executed. */
  readonly blocked: number;

  /** True when every running step could finish and no lock is held. */
  readonly isClean: boolean;
}

export interface CheckedOptions extends Omit<WorkerOptions, "drain"> {
  readonly concurrency: number;
  readonly drain: Millis;
  readonly onEvent: (event: WorkerEvent) => void;
}

/** Throws a TypeError or RangeError that names the option. */
export function checkOptions(options: WorkerOptions): CheckedOptions {
  if (!options?.runtime?.workflows) {
    throw new TypeError(
      "runWorker needs a runtime, such as { runtime: createRuntime({ journal, workflows }) }",
    );
  }
  checkOptionNames("runWorker", options, OPTIONS);
  const { concurrency = 8, drain = 30_000 } = options;
  checkWhole("concurrency", concurrency, 1, 1_000);
  if (options.runtime.workflows.length === 0) {
    throw new TypeError("the worker's runtime has no workflows; pass `workflows` to createRuntime");
  }
  checkSignal(options.signal);
  checkSignal(options.abort);
  if (options.queues !== undefined && !Array.isArray(options.queues)) {
    throw wrongType("queues", "a list", options.queues);
  }
  if (options.queues?.length === 0) {
    throw new TypeError("the worker has no queues; name some, or leave `queues` out");
  }
  for (const queue of options.queues ?? []) checkText("queue", queue, 255);
  const onEvent = listener(options.onEvent);
  return { ...options, concurrency, drain: toMillis("drain", drain), onEvent };
}
