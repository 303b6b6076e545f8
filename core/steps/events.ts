import type { EndStatus, StepRecord } from "../journal/journal.ts";
import type { Millis } from "../lock/time.ts";
import type { SuspendReason } from "./workflow.ts";

/** What happens to runs that are carried here. */
export type RunEvent =
  | {
      readonly type: "taken";
      readonly runId: string;
      readonly workflow: string;
      readonly crashes: number;
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
      readonly type: "ended";
      readonly runId: string;
      readonly workflow: string;
      readonly status: EndStatus;
    }
  /** A run was asked for that has ended before. */
  | { readonly type: "answered"; readonly runId: string; readonly status: EndStatus }
  /** The journal has answered for a step that was done before. */
  | { readonly type: "replayed"; readonly runId: string; readonly key: string };

export type RunListener = (event: RunEvent) => void;
