import type { Journal } from "../journal/journal.ts";
import type { DueQuery, RunDetails } from "../journal/queries.ts";
import type { RecordPage } from "../journal/records.ts";
import type { RunTurn } from "../journal/runs.ts";
import type { Duration } from "../lock/duration.ts";
import type { LockStore } from "../lock/lock.ts";
import type { Deadline, Millis } from "../lock/time.ts";
import type { Codec } from "./codecs.ts";
import type { EntityHandle } from "./entity/actor.ts";
import type { AnyEntity, Entity, EntityHandlers } from "./entity/entity.ts";
import type { RunListener } from "./events.ts";
import type { InterceptedStep, Interceptor } from "./interceptor.ts";
import type { AnyWorkflow, RunError, RunOutcome, Workflow } from "./workflow.ts";

export interface RuntimeOptions {
  readonly journal: Journal;

  /**
   * The store of the steps' locks. It may be of another system than the journal. A store with notices also tells
   * workers of other processes that runs are due.
   */
  readonly locks?: LockStore | undefined;

  /**
   * Encodes the values of runs and entities for the journal, one codec after the other: `[Codec.compressed(), Codec.encrypted({ … })]`.
   * A value is decoded by the codecs that have encoded it, and without them, its run is blocked.
   */
  readonly codec?: Codec | readonly Codec[] | undefined;

  /** The workflows that `resume` can execute. `execute`, `start` and `run` add their own. */
  readonly workflows?: readonly AnyWorkflow[];

  /** The entities that `deliver` can handle. `entity` adds its own. */
  readonly entities?: readonly AnyEntity[];

  /** The name of this process for operators, 1 to 200 bytes. */
  readonly owner?: string;

  /** How long a run or an entity stays claimed after the last renewal. The runtime renews its leases. Default 30 s. */
  readonly lease?: Duration;

  /** Pauses up to this length are waited for in the process. The run is parked for longer ones. Default 1 s. */
  readonly inlineWait?: Duration;

  /** For tests: sleeps, pauses between attempts and the timeouts of signals take no time. Default false. */
  readonly skipPauses?: boolean;

  /**
   * How long a run is parked for locks that its worker watches, give or take a half: the worker may die. Default 2 s.
   *
   * @internal
   */
  readonly lockPoll?: Duration;

  /** Called with each event of the runs that this runtime executes. Its errors are ignored. */
  readonly onEvent?: RunListener;

  /**
   * Called with each error that the code of a workflow, a step or an undo has thrown, as it was thrown, with its stack: the
   * journal keeps none. `at` names the step and the attempt, if any. Of a handler of an entity, `at` has the resource of its
   * fence as `runId`, the entity as `workflow`, the handler as `name` and the operation id as `key`. Errors of the listener
   * are ignored.
   */
  readonly onError?: (
    error: unknown,
    at: Partial<InterceptedStep> & Pick<InterceptedStep, "runId" | "workflow">,
  ) => void;

  /** Called around each run, and around each attempt of a step. */
  readonly interceptor?: Interceptor;
}

/** The members of `RunTurn` replace what the workflow says about new runs. */
export interface ExecuteOptions extends RunTurn {
  /** The run's id, 1 to 255 bytes. Default: the workflow's own `id`. */
  readonly id?: string | undefined;

  /** The end of the invocation: no attempt begins that cannot finish, and those in progress are aborted at the end. */
  readonly deadline?: Deadline | undefined;

  /** Stops the execution and aborts the steps in progress. The run is due for others at once. */
  readonly signal?: AbortSignal | undefined;

  /** Stops the execution at the next step. The steps in progress may finish. */
  readonly drain?: AbortSignal | undefined;

  /**
   * The longest wait in this process for a lock with `onBusy: "wait"`. Then the run is parked, and woken
   * when a step releases the lock. Default: as the step says.
   */
  readonly lockWait?: Duration | undefined;

  /** Called when the run is claimed: without the call, the outcome is that of another execution. It must not throw. */
  readonly onTaken?: () => void;
}

export interface StartOptions extends Pick<ExecuteOptions, "id" | keyof RunTurn> {
  /** While a run of the workflow with this key is open, the start answers that run, whatever its input. */
  readonly singleton?: string | undefined;

  /**
   * Starts one run for all starts with this key that come within `for` of one another: the run begins that long after
   * the last one, with its input.
   */
  readonly debounce?: { readonly key: string; readonly for: Duration } | undefined;
}

export type ResumeOptions = Omit<ExecuteOptions, keyof StartOptions>;

/** A claimed run. */
export interface DueExecution {
  readonly runId: string;

  /** The number of the history that was claimed. */
  readonly part: number;

  /** Executes the run until it ends or has to wait. Rejects as `resume` does. */
  execute(options?: ResumeOptions): Promise<RunOutcome<unknown>>;
}

/** Executes runs, in functions, workers and other programs alike. Its own errors are TerminalErrors with a code. */
export interface Runtime {
  /**
   * Starts a run, or resumes it, until it ends or has to wait. Rejects with INVALID or INPUT_CONFLICT
   * before any step, and with the journal's error when the journal cannot be reached: the run is due again when its lease
   * has expired.
   */
  execute<I, O>(
    workflow: Workflow<I, O>,
    input: I,
    options?: ExecuteOptions,
  ): Promise<RunOutcome<O>>;

  /** Resumes an existing run. Rejects with UNKNOWN_RUN or UNKNOWN_WORKFLOW. */
  resume(runId: string, options?: ResumeOptions): Promise<RunOutcome<unknown>>;

  /**
   * Claims due runs of this runtime's workflows, for the caller to execute at once: until their leases expire, other
   * processes leave them alone. Default `queues`: those of the workflows, and "default".
   *
   * @internal
   */
  claimDue(
    query: Pick<DueQuery, "limit" | "except" | "onHeldBack"> & Partial<Pick<DueQuery, "queues">>,
    signal?: AbortSignal,
  ): Promise<readonly DueExecution[]>;

  /**
   * Calls `listener` when runs may have become due in the journal, until the returned function is called: after calls of
   * this process, and of other processes with the same lock store, if it can notify. Some may be missed.
   *
   * @internal
   */
  onDue(listener: () => void): () => void;

  /** Starts a run for other processes to execute: the run is due at once, unless it is debounced. */
  start<I, O>(workflow: Workflow<I, O>, input: I, options?: StartOptions): Promise<RunOutcome<O>>;

  /** Calls `execute` until the run has ended or is blocked. Rejects with the signal's reason. */
  run<I, O>(
    workflow: Workflow<I, O>,
    input: I,
    options?: Omit<ExecuteOptions, "deadline">,
  ): Promise<FinishedRun<O>>;

  /**
   * Sends a signal to a run, once per dedupe id. Rejects with UNKNOWN_RUN, and with INVALID if the run's
   * workflow is one of this runtime's and declares another payload: nothing is delivered then.
   */
  signal(
    runId: string,
    name: string,
    payload: unknown,
    options: { readonly dedupeId: string },
  ): Promise<"delivered" | "duplicate" | "ended">;

  /**
   * Sends an update to a run: a signal that the workflow answers, with `ctx.answer`. Waits for the answer until `wait`
   * is over, while any process executes the run. Default 10 s. A second call with the same dedupe id gets the same
   * answer, and rejects with SIGNAL_CONFLICT for another payload. Rejects as `signal` does, and with INVALID for an update
   * that the run's workflow does not declare, if this runtime knows the workflow.
   */
  update(
    runId: string,
    name: string,
    payload: unknown,
    options: { readonly dedupeId: string; readonly wait?: Duration; readonly signal?: AbortSignal },
  ): Promise<
    | { readonly status: "answered"; readonly output: unknown }
    /** The workflow's handler threw the error, or the workflow has discarded the payload: INVALID. */
    | { readonly status: "failed"; readonly error: RunError }
    /** The update is delivered, and not answered yet: call again with the same dedupe id. */
    | { readonly status: "pending" }
    /** The run ended without an answer. */
    | { readonly status: "ended" }
  >;

  /**
   * Reads the last value that the run has published under this name, without executing the run; undefined before the
   * first. Rejects with UNKNOWN_RUN.
   */
  query(runId: string, name: string): Promise<unknown>;

  /**
   * Reads a run, with the values that its journal would have without a codec.
   *
   * @internal
   */
  show(runId: string, page?: RecordPage): Promise<RunDetails | undefined>;

  /**
   * Cancels a run: the step in progress is aborted, no other one begins, and the run is undone, after its children that
   * are not detached. Rejects with UNKNOWN_RUN.
   */
  cancel(runId: string): Promise<"requested" | "ended">;

  /**
   * Lets a failed, cancelled or blocked run go on: it is due at once, in a new epoch. Recorded results are used again. The
   * step that failed is executed again, and so are the steps that were undone, with new idempotency keys. The earlier
   * records are kept. Resolves to "open" for a run that is under way.
   *
   * Rejects with UNKNOWN_RUN, with RUN_COMPLETED, and with UNDO_FAILED while an undo has failed.
   */
  retry(runId: string): Promise<"reopened" | "open">;

  /**
   * Attempts the failed undos of an ended run again: the run is due at once, and ends as before. Rejects with
   * UNKNOWN_RUN and NO_FAILED_UNDO.
   */
  retryUndo(runId: string): Promise<"reopened" | "open">;

  /**
   * Starts a new run with the input, the version and the recorded results of another run up to the step `from`, which is
   * executed anew: due at once, with the id `as`, or a random one. Resolves to its id. A second call with the same
   * arguments answers the same fork. The other run may be open, and does not change.
   *
   * Rejects with UNKNOWN_RUN and UNKNOWN_STEP; FORK_CONFLICT for an id that is in use; RUN_UNDOING while the run is
   * undone; UNDO_FAILED if a step before `from` has a failed undo.
   */
  fork(
    runId: string,
    options: { readonly from: string; readonly as?: string | undefined },
  ): Promise<string>;

  /** Returns one key of an entity. */
  entity<State, H extends EntityHandlers>(
    entity: Entity<State, H>,
    key: string,
  ): EntityHandle<State, H>;

  /**
   * Handles operations of entities that wait: those that were told, and those whose process has crashed. Workers and
   * sweeps call it. Resolves to the number of operations. After `signal` no further operation is handled; `abort` aborts those
   * in progress, which wait for another turn.
   */
  deliver(signal?: AbortSignal, abort?: AbortSignal): Promise<number>;

  /**
   * Starts the slots of the workflows' schedules that have begun, by the clock of this process, each as one run for all
   * processes, as long as the run is kept. Workers and sweeps call it. Rejects in an outage of the journal.
   */
  startScheduled(): Promise<{
    /** The ids of the runs that were started, by this process or by another one at the same time. */
    readonly started: readonly string[];

    /**
     * Slots without a valid input, which the next call tries again. Slots whose own id of the workflow belongs to a run
     * with another input (INPUT_CONFLICT): no call starts them. And schedules that cannot be read or moved, by the name
     * of their workflow in place of the run's id.
     */
    readonly refused: readonly { readonly runId: string; readonly error: unknown }[];

    /** The time until the next slot. Infinity without schedules. */
    readonly nextIn: Millis;
  }>;

  /** The workflows that this runtime can resume. */
  readonly workflows: readonly { readonly workflow: string; readonly version: number }[];
  readonly journal: Journal;
}

/** The outcome of a run that has ended, or is blocked. */
export type FinishedRun<O> = Extract<
  RunOutcome<O>,
  { readonly status: "completed" | "failed" | "blocked" }
>;
