import type { StepRecord } from "../journal/records.ts";
import type { FinalStatus } from "../journal/runs.ts";
import type { Millis } from "../lock/time.ts";
import type { ErrorInfo } from "./errors.ts";
import type { SuspendReason } from "./workflow.ts";

/** An event of a run that this runtime executes. */
export type RunEvent =
  /** The run was claimed. */
  | {
      readonly type: "taken";
      readonly runId: string;
      readonly workflow: string;
      readonly crashes: number;

      /** Whether the lease of a holder has expired since the last record: that process was lost, or hangs. */
      readonly takenOver: boolean;
    }
  /** A record was written. */
  | { readonly type: "recorded"; readonly runId: string; readonly record: StepRecord }
  | {
      readonly type: "parked";
      readonly runId: string;
      readonly reason: SuspendReason;
      readonly wakeIn: Millis;
    }
  | {
      readonly type: "blocked";
      readonly runId: string;
      readonly workflow: string;
      readonly error: ErrorInfo;
      readonly retryIn: Millis;
    }
  | {
      readonly type: "ended";
      readonly runId: string;
      readonly workflow: string;
      readonly status: FinalStatus;
    }
  /** The run goes on in a new history: `part` is its number. */
  | {
      readonly type: "continued";
      readonly runId: string;
      readonly workflow: string;
      readonly part: number;
    }
  /** The run's history has many records: call `ctx.continueAsNew` before it reaches its limit. */
  | {
      readonly type: "long-history";
      readonly runId: string;
      readonly workflow: string;
      readonly records: number;
    }
  /** The outcome of an ended run was returned. */
  | { readonly type: "answered"; readonly runId: string; readonly status: FinalStatus }
  /** The recorded result of a step was returned. */
  | { readonly type: "replayed"; readonly runId: string; readonly key: string };

export type RunListener = (event: RunEvent) => void;
