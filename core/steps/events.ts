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
  | { readonly type: "ended"; readonly runId: string; readonly status: EndStatus };

export type RunListener = (event: RunEvent) => void;
