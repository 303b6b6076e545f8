import type { Journal, NewRecord, ParkReason, StepRecord } from "../journal/journal.ts";
import type { LockStore } from "../lock/lock.ts";
import type { Deadline, Millis } from "../lock/time.ts";
import type { Around } from "./around.ts";

/** What a step needs of the run that it belongs to. */
export interface Carrier {
  readonly runId: string;
  readonly workflowName: string;
  readonly deadline: Deadline;
  readonly locks: LockStore | undefined;
  readonly around: Around;

  /** Aborts with a Suspension or a Breakdown when the run is to be let go of. */
  readonly signal: AbortSignal;

  /** Rejects with a Breakdown where the journal does not take it. */
  append(record: NewRecord): Promise<StepRecord>;

  /** Rejects with a Breakdown of whatever the body or the journal has failed with. */
  transact(step: Parameters<Transaction>[1], body: Parameters<Transaction>[2]): Promise<StepRecord>;

  /** Waits here if it is short, and throws a Suspension otherwise. */
  pause(reason: ParkReason, span: Millis): Promise<void>;

  /** Milliseconds since this time, by the journal's clock. */
  since(at: Date): Millis;

  /** Throws what keeps an attempt from being begun: the run is over, or to be let go of. */
  mayBegin(): void;

  /** Throws the Suspension or the Breakdown once the run is to be let go of. */
  stillCarrying(): void;
}

export type Transaction = NonNullable<Journal["transact"]>;
