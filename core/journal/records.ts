import type { Fence } from "../lock/fence.ts";
import type { Millis } from "../lock/time.ts";

export type RecordKind =
  | "step"
  | "tx"
  | "sleep"
  | "signal"
  | "child"
  | "value"
  | "undo"
  | "failure"
  | "fork"
  /** The answer to an update that the workflow has discarded. */
  | "refusal";

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

/** The most bytes of UTF-8 in an input, an error, an ending or a signal's payload: 1 MiB. */
export const LONGEST_VALUE = 1_048_576;

/** The most bytes of a record's result: 16 MiB. */
export const LONGEST_RESULT = 16 * LONGEST_VALUE;

/** A result of more bytes stands beside its record: 8 KiB. */
export const LARGE_RESULT = 8_192;

/** The most records of a page. */
export const RECORDS_PER_PAGE = 1_000;
