import type { Millis } from "../lock/time.ts";
import type { PageOfRecords } from "./records.ts";
import type {
  ClaimedRun,
  ParkReason,
  RunLeaseRequest,
  RunResult,
  RunSignal,
  RunStatus,
  RunTurn,
  StepInProgress,
  WorkflowVersion,
} from "./runs.ts";

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

  /** Why the run is blocked, encoded. */
  readonly error: string | undefined;

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

  /** The ids of the run's forks, at most MOST_FORKS, the oldest first. */
  readonly forks: readonly string[];
  readonly now: Date;
}
