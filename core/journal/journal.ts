import type { Transaction } from "../database/sql.ts";
import type { Fence, FencedOutError } from "../lock/fence.ts";
import type { Millis } from "../lock/time.ts";
import type { WakeUps } from "../lock/wake-ups.ts";
import type { EntityRecords } from "./entities.ts";
import type { QueueLimits } from "./limits.ts";

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
   * repeated after a deadlock, and after a lost answer to a COMMIT that did not happen.
   *
   * Undefined if the journal is neither in a SQL database nor in DynamoDB.
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

/** Names a run and one claim of it. */
export interface RunKey {
  readonly runId: string;

  /** Above 0. Raised by each claim. A later run with the same id never reuses an epoch, so epochs do not start at 1. */
  readonly epoch: bigint;
}

/** The state of a run at its renewal. */
export interface RunRenewal {
  readonly cancelled: boolean;

  /** The number of signals that the run has received. */
  readonly signals: number;
}

/** A step that the holder of its run executes, or that waits for a lock. */
export interface StepInProgress {
  /** The step's key. */
  readonly key: string;

  /** When the wait for the lock or, with the lock, the attempt began. */
  readonly since: Date;

  /** The lock that the step waits for, as in `RunInfo`. Undefined: the attempt has begun. */
  readonly waitsFor?: string | undefined;
}

/** Requests the lease of an existing run. */
export interface RunLeaseRequest {
  /** 1 to 255 bytes. */
  readonly runId: string;

  /** The name of the process, for humans: a second claim by the same owner is refused too. 1 to 255 bytes. */
  readonly owner: string;

  /** The length of the lease without a renewal. */
  readonly ttl: Millis;
}

/** Requests the lease of a run that is created if it does not exist. */
export interface RunClaim extends RunLeaseRequest, NewRun {}

/** A run to create. */
export interface NewRun {
  /** 1 to 255 bytes. */
  readonly runId: string;

  /** The name of the process that creates the run, 1 to 255 bytes. */
  readonly owner: string;

  /** 1 to 255 bytes. */
  readonly workflow: string;

  /** From 0 to 2^31 - 1. */
  readonly version: number;

  /** Encoded: a string of at most LONGEST_VALUE bytes, here and wherever a field is called encoded. */
  readonly input: string;

  /** Identifies the input: a claim of the same run id with another hash is a conflict. 64 hexadecimal digits. */
  readonly inputHash: string;

  /** The run that receives a signal when this run ends. */
  readonly parent?: ParentRun | undefined;

  /** Whether the run goes on when its parent fails or is cancelled. Default false. */
  readonly detached?: boolean | undefined;

  /** The run's place among due runs. An existing run keeps its own. */
  readonly turn?: RunTurn | undefined;
}

/** The properties that decide when a due run gets its turn. */
export interface RunTurn {
  /** Workers choose the queues that they serve. 1 to 255 bytes. Default "default". */
  readonly queue?: string | undefined;

  /** Due runs with different keys take turns, such as those of different tenants. 1 to 255 bytes. Default none. */
  readonly key?: string | undefined;

  /** From -1,000 to 1,000: higher ones come first. Default 0. */
  readonly priority?: number | undefined;
}

/** How a start relates to other runs of its workflow. */
export interface KeyedStart {
  /** 1 to 255 bytes. */
  readonly key: string;

  /** From 0 to 100 years. Undefined: one open run per key. */
  readonly quiet?: Millis | undefined;
}

/** The run of a keyed start. */
export type KeyedRun = { readonly runId: string } & RunState;

export interface ParentRun {
  readonly runId: string;

  /** The signal's name. */
  readonly signal: string;
}

/** A run after `start`. Another process may execute it already. */
export type StartedRun = ({ readonly parent: ParentRun | undefined } & RunState) | RunConflict;

export type RunClaimResult = (ClaimedRun & { readonly kind: "claimed" }) | RunState | RunConflict;

/** The run exists with another workflow or input. */
export interface RunConflict {
  readonly kind: "conflict";
}

/** The state of a run that the caller has not claimed. */
export type RunState =
  /** Another holder has the lease for `retryIn` milliseconds, unless it renews. */
  | { readonly kind: "busy"; readonly retryIn: Millis }
  /** The run is parked and due in `wakeIn` milliseconds; Infinity as in {@link ParkRequest}. */
  | {
      readonly kind: "parked";
      readonly reason: ParkReason;
      readonly wakeIn: Millis;

      /** Whether the run waits for children. */
      readonly awaitsChildren: boolean;
    }
  /** The run is blocked with an encoded error, and due in `retryIn` milliseconds. */
  | { readonly kind: "blocked"; readonly error: string; readonly retryIn: Millis }
  | { readonly kind: "ended"; readonly ending: RunResult };

export interface RunNotFound {
  readonly kind: "missing";
}

/** A run as its new holder gets it, with the first page of its records. */
export interface ClaimedRun extends PageOfRecords {
  readonly epoch: bigint;

  /** Counts the run's histories from 1. */
  readonly part: number;

  /** The number of all signals so far. */
  readonly signalsSeen: number;
  readonly workflow: string;

  /** The workflow's version at the creation of the run. */
  readonly version: number;
  readonly input: string;
  readonly parent: ParentRun | undefined;

  /** Consecutive claims after a lease that expired without a record, `park`, `block` or `finish`. */
  readonly crashes: number;

  /** Whether the lease of the holder before had expired: that process was lost, or hangs. */
  readonly takenOver: boolean;

  /** Consecutive calls of `block` without a record or `park` between them. */
  readonly blocks: number;
  readonly cancelled: boolean;

  /** The signals that no earlier history has received, in the order of their arrival. */
  readonly signals: readonly RunSignal[];

  /** By the journal's clock. */
  readonly startedAt: Date;
  readonly now: Date;
}

export type RecordKind =
  | "step"
  | "tx"
  | "sleep"
  | "signal"
  | "child"
  | "value"
  | "undo"
  | "failure"
  | "fork";

/**
 * `ok`, `failed`: the final record of a step, under the step's key. `retry`: a failed attempt, under the key, "@" and
 * the attempt's number. `started`: a started attempt, under the same with " started".
 */
export type RecordOutcome = "ok" | "failed" | "started" | "retry";

export interface NewRecord {
  /** Unique in its run: 1 to 512 bytes. */
  readonly key: string;
  readonly kind: RecordKind;
  readonly outcome: RecordOutcome;

  /** From 1. */
  readonly attempt: number;

  /** Encoded: the result of `ok`, of at most LONGEST_RESULT bytes; the error of `failed` and `retry`. */
  readonly value: string | undefined;

  /** The hash of the step's arguments, 1 to 128 bytes. Undefined without arguments. */
  readonly argsHash?: string | undefined;

  /** The step's fences as text, separated by spaces: 1 to 65,535 bytes. */
  readonly fence?: string | undefined;

  /** The duration of the step. */
  readonly took?: Millis | undefined;

  /** The wait for the step's locks before that. */
  readonly waited?: Millis | undefined;
}

export interface StepRecord extends NewRecord {
  /** The bytes of a large result, which stands beside its record: `values` reads it, and reads leave out `value`. */
  readonly valueBytes?: number | undefined;
  readonly epoch: bigint;

  /** The time of the write by the journal's clock. */
  readonly at: Date;
}

/** Chooses records of a run, in the order of their writes. */
export interface RecordPage {
  /** The number of the history. Default the current one; the one before is kept as well. */
  readonly part?: number | undefined;

  /** `next` of the page before. */
  readonly after?: string | undefined;

  /** Default and at most RECORDS_PER_PAGE. */
  readonly limit?: number | undefined;
}

/** Records in the order of their writes. */
export interface PageOfRecords {
  readonly records: readonly StepRecord[];

  /** The cursor of the next page, as the journal writes it. Undefined after the last record. */
  readonly next: string | undefined;
}

/** A step whose changes and record are one transaction. */
export interface TransactionalStep {
  /** The key of its record. */
  readonly key: string;

  /** Claimed before the step's body. */
  readonly fences: readonly Fence[];
}

export type ParkReason =
  | "sleep"
  | "signal"
  | "deadline"
  | "lock-busy"
  | "retry-delay"
  | "child"
  | "debounce";

export interface ParkRequest {
  readonly reason: ParkReason;

  /** At most 100 years. Infinity: until a signal or a cancellation. */
  readonly wakeIn: Millis;

  /** The number of signals that the holder has seen. */
  readonly signalsSeen: number;

  /** Names the locks that the run waits for, 1 to 512 bytes: `wakeWaiting` makes the run due. */
  readonly lock?: string | undefined;

  /** When the ends of children make the run due. Undefined: the next one, at once. */
  readonly children?: ChildrenWait | undefined;
}

/** Ends of children wake their parent in batches: each wake replays it. */
export interface ChildrenWait {
  /** The number of ends beyond `signalsSeen` that make the run due at once, from 1. */
  readonly count: number;

  /** The run is due this long after the first end beyond `signalsSeen`. At most 100 years. */
  readonly within: Millis;
}

export interface BlockRequest {
  /** Encoded. */
  readonly error: string;

  /** The new count of consecutive blocks. */
  readonly blocks: number;

  /** At most 100 years. */
  readonly retryIn: Millis;
}

export type FinalStatus = "completed" | "failed" | "cancelled";

/**
 * Whether the steps of a failed run were undone. `no`: an undo failed. `unclear`: a step without an undo may have had its
 * effect.
 */
export type Compensation = "yes" | "no" | "unclear";

export interface CancelledChildren {
  /** The ids of the children that have not ended yet. */
  readonly open: readonly string[];
  readonly compensated: Compensation;
}

export interface FinishRequest {
  readonly status: FinalStatus;

  /** Encoded: the output, or the error. */
  readonly value: string;

  /** Of a run that has not completed. */
  readonly compensated?: Compensation | undefined;

  /** At most 100 years, or Infinity. */
  readonly keep: Millis;

  /** The id of the run's parent, which the end may make due. */
  readonly parent?: string | undefined;
}

/** The end of a run. */
export interface RunResult extends Omit<FinishRequest, "keep" | "parent"> {
  readonly at: Date;
}

export interface ContinueRequest {
  /** The number of the history that ends. */
  readonly part: number;

  /** Encoded. */
  readonly input: string;

  /** The numbers of the signals that the history has received. */
  readonly received: readonly number[];
}

export interface ReopenRequest {
  readonly supersede: readonly string[];

  /** Whether the cancellation is taken back, and the run's time counts from now. */
  readonly isRetry: boolean;
}

export interface ForkRequest extends Pick<NewRun, "runId" | "owner"> {
  /** The key of the step that the fork executes anew. */
  readonly step: string;

  /** The keys of records that are copied. */
  readonly keep: readonly string[];

  /** The keys of records that are copied as superseded ones. */
  readonly supersede: readonly string[];

  /** The numbers of the signals that are copied, from 1, in the order of their arrival. */
  readonly signals: readonly number[];

  /** A record after all copied ones. */
  readonly mark: NewRecord;
}

export interface NewSignal {
  /** 1 to 255 bytes. */
  readonly name: string;

  /** 1 to 255 bytes. */
  readonly dedupeId: string;

  /** Encoded. */
  readonly payload: string;
}

export interface RunSignal extends NewSignal {
  /** Counts the run's signals from 1. */
  readonly number: number;
  readonly at: Date;
}

/** Requests the leases of due runs. */
export interface DueQuery extends Omit<RunLeaseRequest, "runId"> {
  /** The workflows that the caller can resume. */
  readonly workflows: readonly WorkflowVersion[];
  readonly queues: readonly string[];

  /** At most 1,000. */
  readonly limit: number;

  /** The ids of runs to leave out. */
  readonly except?: readonly string[] | undefined;

  /** Claims only children of this run. */
  readonly parent?: string | undefined;

  /** Called when a rate holds back due runs: for this long, unless it is changed. */
  readonly onHeldBack?: ((retryIn: Millis) => void) | undefined;
}

export interface DueRun extends ClaimedRun {
  readonly runId: string;
}

export interface WorkflowVersion {
  readonly workflow: string;
  readonly version: number;
}

/** `blocked`: no process could execute the run, which is tried again. */
export type RunStatus = "running" | "parked" | "blocked" | FinalStatus;

/** All statuses of a run, in the order of its life. */
export const RUN_STATUSES = [
  "running",
  "parked",
  "blocked",
  "completed",
  "failed",
  "cancelled",
] as const satisfies readonly RunStatus[];

/** The open runs of a queue. */
export interface QueueDepth {
  readonly queue: string;

  /** The number of runs with this status. */
  readonly running: number;
  readonly parked: number;
  readonly blocked: number;

  /** The number of runs of any of these statuses that a process may take: also those that limits hold back. */
  readonly due: number;

  /** The time since the oldest of them became due. 0 if none is due. */
  readonly oldestDueFor: Millis;
}

export interface RunQuery extends Pick<RunTurn, "queue" | "key"> {
  readonly workflow?: string | undefined;
  readonly status?: RunStatus | undefined;

  /** The id of the last run of the page before. A RangeError if it was purged since. */
  readonly after?: string | undefined;

  /** Default 100, at most 10,000. */
  readonly limit?: number | undefined;
}

export interface RunInfo extends WorkflowVersion {
  readonly runId: string;

  /** Counts the run's histories from 1. */
  readonly part: number;
  readonly queue: string;

  /** The key of the run's turn. */
  readonly key: string | undefined;
  readonly priority: number;
  readonly status: RunStatus;
  readonly epoch: bigint;

  /** The last holder. */
  readonly owner: string;

  /** Of a parked run. */
  readonly reason: ParkReason | undefined;

  /** Of a run that is parked for a busy lock: its name. A JSON list of names, or its hash, for several locks. */
  readonly waitsFor: string | undefined;

  /**
   * Of a running run: the steps that its holder had in progress for more than a second at its last renewal, at most 10.
   * After the end of the lease: what a lost holder was at.
   */
  readonly inProgress: readonly StepInProgress[];
  readonly crashes: number;
  readonly cancelled: boolean;

  /** Of a fork: the run whose results it uses, and the key of the first step of its own. */
  readonly origin: { readonly runId: string; readonly step: string } | undefined;
  readonly startedAt: Date;

  /** The time of the last claim, park or end. */
  readonly changedAt: Date;

  /** The end of a running run's lease; the wake-up time of a parked run. Undefined without either. */
  readonly dueAt: Date | undefined;
}

export interface RunDetails extends RunInfo, PageOfRecords {
  readonly input: string;
  readonly signals: readonly RunSignal[];
  readonly ending: RunResult | undefined;

  /** Why the run is blocked, encoded. */
  readonly error: string | undefined;

  /** The ids of the run's forks, at most MOST_FORKS, the oldest first. */
  readonly forks: readonly string[];
  readonly now: Date;
}

/** The most bytes of UTF-8 in an input, an error, an ending or a signal's payload: 1 MiB. */
export const LONGEST_VALUE = 1_048_576;

/** The most forks that `show` returns. */
export const MOST_FORKS = 100;

/** The most steps in progress on record. */
export const MOST_IN_PROGRESS = 10;

/** The most bytes of a record's result: 16 MiB. */
export const LONGEST_RESULT = 16 * LONGEST_VALUE;

/** A result of more bytes stands beside its record: 8 KiB. */
export const LARGE_RESULT = 8_192;

/** The most records of a page. */
export const RECORDS_PER_PAGE = 1_000;

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
