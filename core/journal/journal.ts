import type { Transaction } from "../database/sql.ts";
import type { FencedOutError } from "../lock/errors.ts";
import type { Fence } from "../lock/fence.ts";
import type { Millis } from "../lock/time.ts";

/**
 * What a run has done, so that another process can go on with it.
 *
 * Every write names the run's epoch, and is a compare-and-set on it: whoever takes a run raises its epoch, and
 * from then on what its predecessor writes is refused with a {@link StaleRunError}. Times are the journal's own.
 *
 * Records that are written at the same time are answered in the order in which they stand.
 *
 * Writes whose answer was lost are repeated inside: all of them are idempotent. They reject like a `Database`,
 * and with bad input before any I/O.
 */
export interface Journal extends AsyncDisposable {
  /** Where it is, for messages: never with a secret. */
  readonly address: string;

  /** Makes the run where there is none, and takes it where it is due. */
  claim(claim: Claim, signal?: AbortSignal): Promise<Claimed>;

  /** Takes a run that is there already, and due. `missing`: there is none. */
  take(take: Take, signal?: AbortSignal): Promise<Claimed | Missing>;

  /** Keeps the run ours for `ttl` milliseconds from now, never less than before. Undefined: it is no longer ours. */
  renew(run: RunKey, ttl: Millis, signal?: AbortSignal): Promise<Renewed | undefined>;

  /**
   * Writes a record under its key, once. Resolves to what stands there now: a record of the same epoch that came
   * before stays, and is the answer.
   */
  append(run: RunKey, record: NewRecord, signal?: AbortSignal): Promise<StepRecord>;

  /**
   * Runs `body` in a transaction of the journal's database and writes its record in the same one, once: where
   * the record stands already, `body` does not run, or what it has done is rolled back, and that record is the answer.
   *
   * Before `body`, the fences are claimed, all of them in this transaction; a late one rejects with a
   * {@link FencedOutError}. The body is repeated when it was the victim of a deadlock, or when the answer to its
   * commit was lost and it turns out not to have happened.
   *
   * Undefined where the journal is not in a database.
   */
  readonly transact:
    | ((
        run: RunKey,
        work: TransactedStep,
        body: (tx: Transaction) => Promise<NewRecord>,
        signal?: AbortSignal,
      ) => Promise<StepRecord>)
    | undefined;

  /**
   * Gives the run back unfinished. It becomes due after `wakeIn` milliseconds, at once when a signal has come
   * since `signalsSeen` or it was cancelled after it was claimed, and as soon as one of the two comes.
   */
  park(run: RunKey, parking: Parking, signal?: AbortSignal): Promise<void>;

  /**
   * Ends the run, and in the same step leaves the signal for its parent, if it has one that has not ended: the
   * run's id is its dedupe id, its payload is made by `toPayload`.
   *
   * Its outcome and records are kept for `keep` milliseconds. From then on there is no such run: claiming it
   * begins another one.
   */
  finish(run: RunKey, ending: Ending, signal?: AbortSignal): Promise<void>;

  /**
   * Leaves a signal for a run, and makes it due if it is parked. Once per `dedupeId`: a second one with that id
   * and name changes nothing. Where an answer was lost, the first one may be called a duplicate of itself.
   */
  signal(
    runId: string,
    signal: NewSignal,
  ): Promise<"delivered" | "duplicate" | "ended" | "missing">;

  /** Asks a run to stop at its next step and to undo what it has done. It becomes due if it is parked. */
  cancel(runId: string): Promise<"requested" | "ended" | "missing">;

  /** Ids of runs that are due, the longest due first. Several callers get the same ones: only `take` decides. */
  due(query: DueQuery, signal?: AbortSignal): Promise<readonly string[]>;

  /** Newest first. */
  list(query?: RunQuery): Promise<readonly RunInfo[]>;

  /** Everything that is known of a run, with its records in the order in which they were written. */
  show(runId: string): Promise<RunDetails | undefined>;

  /** Forgets ended runs whose time is over, at most `limit` of them. Resolves to how many. */
  purge(limit: number): Promise<number>;

  close(): Promise<void>;
}

/** A run that its holder writes to. */
export interface RunKey {
  readonly runId: string;

  /**
   * Above 0. Raised whenever the run is taken; no run that bears this id later has it again, so it does not count
   * from 1.
   */
  readonly epoch: bigint;
}

/** What the holder of a run learns when it renews. */
export interface Renewed {
  readonly cancelled: boolean;

  /** How many signals the run has been sent. */
  readonly signals: number;
}

export interface Take {
  /** 1 to 255 bytes. */
  readonly runId: string;

  /** Who works on it, for humans alone: the same one is as busy as another. 1 to 255 bytes. */
  readonly owner: string;

  /** How long the run stays ours unless renewed. */
  readonly ttl: Millis;
}

export interface Claim extends Take {
  /** 1 to 255 bytes. */
  readonly workflow: string;

  /** From 0 to 2^31 - 1. */
  readonly version: number;

  /** Encoded, like all that is called so: a string of at most LONGEST_VALUE bytes. */
  readonly input: string;

  /** What must not differ when the same run id comes again: 64 hexadecimal digits. */
  readonly inputHash: string;

  /** The run to send a signal to when this one ends. */
  readonly parent?: ParentRun | undefined;
}

export interface ParentRun {
  readonly runId: string;

  /** The signal's name. */
  readonly signal: string;
}

export type Claimed =
  | (Possession & { readonly kind: "claimed" })
  /** Somebody works on it, for `retryIn` milliseconds more unless renewed. */
  | { readonly kind: "busy"; readonly retryIn: Millis }
  /** It is parked, and due in `wakeIn` milliseconds; Infinity as in {@link Parking}. */
  | { readonly kind: "parked"; readonly reason: ParkReason; readonly wakeIn: Millis }
  | { readonly kind: "ended"; readonly ending: Ended }
  /** The run's workflow or input was another one. */
  | { readonly kind: "conflict" };

export interface Missing {
  readonly kind: "missing";
}

/** What one gets together with a run. */
export interface Possession {
  readonly epoch: bigint;
  readonly workflow: string;

  /** With which it was begun. */
  readonly version: number;
  readonly input: string;
  readonly parent: ParentRun | undefined;

  /** How often in a row it was taken from a holder that had neither parked nor ended it. */
  readonly crashes: number;
  readonly cancelled: boolean;

  /** In the order in which they were written. */
  readonly records: readonly StepRecord[];

  /** All signals it was ever sent, in the order of their arrival. */
  readonly signals: readonly Signal[];

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
  | "failure";

/**
 * `ok`, `failed`: the record is the last word on its step. `started`, `retry`: one attempt of it, under the step's
 * key, "@" and the attempt's number; for `started`, " started" as well.
 */
export type RecordOutcome = "ok" | "failed" | "started" | "retry";

export interface NewRecord {
  /** Unique in its run: 1 to 512 bytes. */
  readonly key: string;
  readonly kind: RecordKind;
  readonly outcome: RecordOutcome;

  /** From 1. */
  readonly attempt: number;

  /** Encoded: the result of `ok`, the error of `failed` and `retry`. */
  readonly value: string | undefined;

  /** Of the step's arguments, 1 to 128 bytes; undefined where it has none. */
  readonly argsHash?: string | undefined;

  /** The fences it was done under, as text, separated by spaces: 1 to 65,535 bytes. */
  readonly fence?: string | undefined;

  /** How long it took, and how long it waited for its locks before. */
  readonly took?: Millis | undefined;
  readonly waited?: Millis | undefined;
}

export interface StepRecord extends NewRecord {
  readonly epoch: bigint;

  /** When it was written, by the journal's clock. */
  readonly at: Date;
}

export interface TransactedStep {
  readonly key: string;
  readonly fences: readonly Fence[];
}

export type ParkReason = "sleep" | "signal" | "deadline" | "lock-busy" | "retry-delay" | "child";

export interface Parking {
  readonly reason: ParkReason;

  /** At most 100 years, or Infinity: only a signal or a cancellation wakes it. */
  readonly wakeIn: Millis;

  /** How many signals the run had been sent when it was decided to wait. */
  readonly signalsSeen: number;
}

export type EndStatus = "completed" | "failed" | "cancelled";

export interface Ending {
  readonly status: EndStatus;

  /** Encoded: the output, or the error. */
  readonly value: string;

  /** Whether everything that was to be undone is undone. */
  readonly compensated: boolean;

  /** At most 100 years, or Infinity. */
  readonly keep: Millis;
}

export interface Ended extends Omit<Ending, "keep"> {
  readonly at: Date;
}

export interface NewSignal {
  /** 1 to 255 bytes. */
  readonly name: string;

  /** 1 to 255 bytes. */
  readonly dedupeId: string;

  /** Encoded. */
  readonly payload: string;
}

export interface Signal extends NewSignal {
  readonly at: Date;
}

export interface DueQuery {
  /** Whoever asks can only go on with these. */
  readonly workflows: readonly WorkflowKey[];
  readonly limit: number;
}

export interface WorkflowKey {
  readonly workflow: string;
  readonly version: number;
}

export type RunStatus = "running" | "parked" | EndStatus;

export interface RunQuery {
  readonly workflow?: string | undefined;
  readonly status?: RunStatus | undefined;

  /** Default 100, at most 10,000. */
  readonly limit?: number | undefined;
}

export interface RunInfo extends WorkflowKey {
  readonly runId: string;
  readonly status: RunStatus;
  readonly epoch: bigint;

  /** Who works or worked on it last. */
  readonly owner: string;

  /** While it is parked. */
  readonly reason: ParkReason | undefined;
  readonly crashes: number;
  readonly cancelled: boolean;
  readonly startedAt: Date;

  /** When it was taken, parked or ended last. */
  readonly changedAt: Date;

  /** While it runs, when its holder loses it; while it is parked, when it wakes up, if by itself. */
  readonly dueAt: Date | undefined;
}

export interface RunDetails extends RunInfo {
  readonly input: string;
  readonly records: readonly StepRecord[];
  readonly signals: readonly Signal[];
  readonly ending: Ended | undefined;
  readonly now: Date;
}

/** The most bytes of UTF-8 in an input, a record's value, an ending or a signal's payload: 1 MiB. */
export const LONGEST_VALUE = 1_048_576;

export type JournalErrorCode = "STALE_RUN";

/** Somebody else has taken the run: what its former holder wanted to write was refused. */
export class StaleRunError extends Error {
  readonly code = "STALE_RUN" satisfies JournalErrorCode;
  readonly retryable = false;

  constructor({ runId, epoch }: RunKey) {
    super(`run ${JSON.stringify(runId)} has moved on from epoch ${epoch}`);
    this.name = new.target.name;
  }
}
