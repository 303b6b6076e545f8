import type { Millis } from "../lock/time.ts";
import type { PageOfRecords } from "./records.ts";

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

/** The run of a keyed start. `cancelled`: the cancelled run of a singleton, which has not ended. */
export type KeyedRun = { readonly runId: string; readonly cancelled: boolean } & RunState;

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

  /** Whether the lease of a holder has expired since the last record: that process was lost, or hangs. */
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

export type ParkReason =
  | "sleep"
  | "signal"
  | "deadline"
  | "lock-busy"
  | "retry-delay"
  | "child"
  | "debounce";

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

/** Whether a run with this status has not ended. */
export function isOpen(status: RunStatus): status is Exclude<RunStatus, FinalStatus> {
  return status === "running" || status === "parked" || status === "blocked";
}

/** Whether the run waits for further starts with its key before it begins. */
export function isDebounced(run: {
  readonly status: RunStatus;
  readonly reason?: unknown;
}): boolean {
  return run.status === "parked" && run.reason === "debounce";
}
