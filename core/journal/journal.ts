import type { Transaction } from "../database/sql.ts";
import type { FencedOutError } from "../lock/fence.ts";
import type { Millis } from "../lock/time.ts";
import type { WakeUps } from "../lock/wake-ups.ts";
import type {
  BlockRequest,
  ContinueRequest,
  ForkRequest,
  ParkRequest,
  ReopenRequest,
} from "./changes.ts";
import type { EntityRecords } from "./entities.ts";
import type { QueueLimits } from "./limits.ts";
import type { DueQuery, DueRun, QueueDepth, RunDetails, RunInfo, RunQuery } from "./queries.ts";
import type {
  NewRecord,
  PageOfRecords,
  RecordPage,
  StepRecord,
  TransactionalStep,
} from "./records.ts";
import type {
  CancelledChildren,
  FinishRequest,
  KeyedRun,
  KeyedStart,
  NewRun,
  NewSignal,
  RunClaim,
  RunClaimResult,
  RunKey,
  RunLeaseRequest,
  RunNotFound,
  RunRenewal,
  StartedRun,
  StepInProgress,
} from "./runs.ts";

/**
 * The records of runs, so that another process can resume a run.
 *
 * Each claim of a run raises its epoch. Each write names the epoch, and is refused with a {@link StaleRunError} after
 * another claim. Times are the journal's own.
 *
 * Concurrent writes of a run resolve in the order of their records.
 *
 * All writes are idempotent, and repeated inside after a lost answer. Calls reject as those of a `Database` do, and with
 * a TypeError or RangeError for bad input before any I/O.
 */
export interface Journal extends AsyncDisposable {
  /** The journal's URL without secrets, for messages. */
  readonly address: string;

  /**
   * Called after each call through this object that has made a run due at once, or has left an operation for an entity:
   * for workers of this process and, through `wakeUps` of the journal and of the lock store, of others.
   *
   * @internal
   */
  readonly dueListeners: Set<() => void>;

  /**
   * Tells the workers of other processes that runs are due. Undefined for journals that cannot notify.
   *
   * @internal
   */
  readonly wakeUps?: WakeUps | undefined;

  /**
   * Creates the runs that do not exist, due at once. Resolves to the state of each run in the order of `runs`, of which
   * there are at most 1,000 with distinct ids. A run that exists is not changed. With `parent`, the call is refused with a
   * {@link StaleRunError} if that run is no longer held.
   *
   * @internal
   */
  start(
    runs: readonly NewRun[],
    parent?: RunKey,
    signal?: AbortSignal,
  ): Promise<readonly StartedRun[]>;

  /**
   * Creates the run if it does not exist, and claims it if it is due.
   *
   * @internal
   */
  claim(claim: RunClaim, signal?: AbortSignal): Promise<RunClaimResult>;

  /**
   * Creates a run that is due, or due after `quiet`, unless the last run of the workflow that was started with this key
   * is still open; with `quiet`, unless that run still waits for its first execution. Such a run is the answer: with
   * `quiet`, it gets the input, and waits anew. The run id is new and random.
   *
   * @internal
   */
  startKeyed(run: NewRun, start: KeyedStart, signal?: AbortSignal): Promise<KeyedRun>;

  /**
   * Claims an existing run if it is due.
   *
   * @internal
   */
  take(request: RunLeaseRequest, signal?: AbortSignal): Promise<RunClaimResult | RunNotFound>;

  /**
   * Renews the run's lease for `ttl` milliseconds, and never shortens it. Replaces the run's steps in progress, of which
   * there are at most MOST_IN_PROGRESS. Undefined: the lease is lost.
   *
   * @internal
   */
  renew(
    run: RunKey,
    ttl: Millis,
    signal?: AbortSignal,
    inProgress?: readonly StepInProgress[],
  ): Promise<RunRenewal | undefined>;

  /**
   * Writes a record under its key once. Resolves to the record under that key, which may be an earlier one of the same
   * epoch.
   *
   * @internal
   */
  append(run: RunKey, record: NewRecord, signal?: AbortSignal): Promise<StepRecord>;

  /**
   * Runs `body` and writes its record in one transaction of the journal's database. If the record exists already, `body`
   * does not run or is rolled back, and the call resolves to that record.
   *
   * The transaction claims the fences before `body`; a late fence rejects with a {@link FencedOutError}. The body is
   * repeated after a deadlock, and after a lost answer to a COMMIT that did not happen. A statement that fails fails the
   * call, with TRANSACTION_REFUSED if the body ignores the error.
   *
   * Undefined if the journal's store has no transactions with data of the caller.
   *
   * @internal
   */
  readonly transact:
    | ((
        run: RunKey,
        step: TransactionalStep,
        body: (tx: Pick<Transaction, "batch">) => Promise<NewRecord>,
        signal?: AbortSignal,
      ) => Promise<StepRecord>)
    | undefined;

  /**
   * Releases an unfinished run. It becomes due after `wakeIn` milliseconds, or with the next signal or cancellation. A
   * signal beyond `signalsSeen` or a cancellation since the claim makes it due at once. The ends of children are
   * signals too, and make the run due as `children` says.
   *
   * @internal
   */
  park(run: RunKey, request: ParkRequest, signal?: AbortSignal): Promise<void>;

  /**
   * Releases a run that its holder cannot execute: with an error in place of a result, and due again after `retryIn`
   * milliseconds, or with the next signal or cancellation.
   */
  block(run: RunKey, request: BlockRequest, signal?: AbortSignal): Promise<void>;

  /**
   * Ends the run, and sends a signal to its parent in the same transaction. The signal's dedupe id is the run's id, and
   * its payload is made by `encodeChildResult`. A parent that has ended keeps the signal too, for a retry. A parent that
   * has failed, and has the signal of an earlier end, is reopened: whether its work was undone may have changed.
   *
   * A run whose cancellation was requested does not complete: it is parked instead, due at once, and the call resolves
   * to "cancelled".
   *
   * Keeps the result and the records for `keep` milliseconds. After that the run does not exist, and a claim of its id
   * creates a new run.
   *
   * @internal
   */
  finish(run: RunKey, request: FinishRequest, signal?: AbortSignal): Promise<"ended" | "cancelled">;

  /**
   * Ends the run's history and begins the next one, with another input: the run is due at once, and its time counts from
   * now. Signals that were not received, the parent and the id stay. The records of the ended history are kept until
   * the next one ends.
   *
   * A run whose cancellation was requested does not continue: it is parked, as in `finish`.
   *
   * @internal
   */
  continueAsNew(run: RunKey, request: ContinueRequest): Promise<"continued" | "cancelled">;

  /**
   * Sends a signal to a run, and makes a parked run due. A second signal with the same name and `dedupeId` changes
   * nothing. After a lost answer, the first signal may be reported as a duplicate.
   *
   * @internal
   */
  signal(
    runId: string,
    signal: NewSignal,
  ): Promise<"delivered" | "duplicate" | "ended" | "missing">;

  /**
   * Requests that a run stops and undoes its work. Makes a parked run due.
   *
   * @internal
   */
  cancel(runId: string): Promise<"requested" | "ended" | "missing">;

  /**
   * Requests the cancellation of all open children of a run that are not detached. Resolves to these children, and to how
   * the work of those that have ended was undone.
   *
   * @internal
   */
  cancelChildren(runId: string): Promise<CancelledChildren>;

  /**
   * Reopens a run that has ended or is blocked: it is due at once. Its records under the keys `supersede` are kept under
   * keys of their own, in their places. Resolves to false for a run that is open, or has another epoch than `run`.
   */
  reopen(run: RunKey, request: ReopenRequest): Promise<boolean>;

  /**
   * Creates a run that is due at once, with the workflow, the input and the turn of another run, and with copies of some
   * of its records and signals. "changed": the other run does not exist at this epoch. "conflict": the new id is in use,
   * unless it is that of a fork of the same run at the same step, which is the answer "forked" again.
   *
   * @internal
   */
  fork(origin: RunKey, request: ForkRequest): Promise<"forked" | "changed" | "conflict">;

  /**
   * Claims up to `limit` due runs at once. Runs of a higher priority come first; among equals, keys take turns, and each
   * key's longest due run comes first. Runs that another caller claims at the same time are skipped.
   *
   * @internal
   */
  claimDue(query: DueQuery, signal?: AbortSignal): Promise<readonly DueRun[]>;

  /**
   * Sets the limits of a queue, from the next claim on; `{}` removes them. `claimDue` keeps them, over all processes.
   * `claim` and `take` do not ask for them, and count as executed runs.
   */
  setLimits(queue: string, limits: QueueLimits): Promise<void>;

  /** Returns the limits of all limited queues, by queue. */
  limits(): Promise<ReadonlyMap<string, QueueLimits>>;

  /**
   * Counts the open runs of each queue that has some. Reads all open runs.
   *
   * @internal
   */
  queueDepths(): Promise<readonly QueueDepth[]>;

  /** Lists runs, the newest first. */
  list(query?: RunQuery): Promise<readonly RunInfo[]>;

  /** Reads the state of a run. */
  find(runId: string): Promise<RunInfo | undefined>;

  /**
   * Makes the oldest run due that is parked for this lock. Runs that have been due for more than a second are left out:
   * nobody claims them. Resolves to false if there is none.
   */
  wakeWaiting(lock: string): Promise<boolean>;

  /** Reads the last record of a run, also in the history before, whose key begins with `prefix`, 1 to 512 bytes. */
  latest(runId: string, prefix: string): Promise<StepRecord | undefined>;

  /** Reads a run with its signals and a page of its records. */
  show(runId: string, page?: RecordPage): Promise<RunDetails | undefined>;

  /**
   * Reads a page of the run's records.
   *
   * @internal
   */
  records(runId: string, page: RecordPage): Promise<PageOfRecords>;

  /**
   * Reads the values of records that stand beside them, by the records' keys.
   *
   * @internal
   */
  values(runId: string, keys: readonly string[]): Promise<ReadonlyMap<string, string>>;

  /** @internal */
  readonly entities: EntityRecords;

  /** Deletes at most `limit` ended runs, and answers of entities, after their `keep`. Resolves to their number. */
  purge(limit: number): Promise<number>;

  close(): Promise<void>;
}

/** The most forks that `show` returns. */
export const MOST_FORKS = 100;

/** The most steps in progress on record. */
export const MOST_IN_PROGRESS = 10;

export type JournalErrorCode = "STALE_RUN" | "TRANSACTION_REFUSED";

/** Another process has claimed the run, or the run has ended. The journal refused a write of the former holder. */
export class StaleRunError extends Error {
  override readonly name = "StaleRunError";
  readonly code = "STALE_RUN" satisfies JournalErrorCode;
  readonly retryable = false;

  constructor({ runId, epoch }: RunKey) {
    super(`run ${JSON.stringify(runId)} is no longer held at epoch ${epoch}; stop writing to it`);
  }
}

/** Returns the error of a step whose transaction the store did not accept. Nothing was changed. */
export function transactionRefused(problem: string, cause?: unknown): Error {
  const code = "TRANSACTION_REFUSED" satisfies JournalErrorCode;
  // There is nothing to undo.
  return Object.assign(new Error(problem, { cause }), { code, retryable: true, effect: "none" });
}

export function isTransactionRefused(error: unknown): boolean {
  const code: JournalErrorCode = "TRANSACTION_REFUSED";
  return error instanceof Error && "code" in error && error.code === code;
}
