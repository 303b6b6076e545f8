import type { Millis } from "../lock/time.ts";
import type { NewRecord } from "./records.ts";
import type { NewRun, ParkReason } from "./runs.ts";

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

  /** Whether the run's time counts from now, and the cancellation is taken back unless the run is blocked. */
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
