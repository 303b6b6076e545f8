import type { MeasuredCode } from "../support/commit.ts";
import type { Comparison, Contender, Profiled, Ratio, Result } from "./measure.ts";

export interface SuiteOptions {
  /** Whether functions and steps are measured without peers, so that the packages of peers need not be installed. */
  readonly alone: boolean;
}

/** What a suite compares. */
export interface Contest {
  /** The name and version of the server. Empty if nothing is measured. */
  readonly server: string;

  /** Missing comparisons with reasons, and other notes. */
  readonly notes?: readonly string[];

  /** Counts, by name. */
  readonly counts?: Readonly<Record<string, number>>;

  /** Upper limits of counts, by name. */
  readonly limits?: Readonly<Record<string, number>>;
  readonly contenders: readonly Contender[];
  readonly comparisons: readonly Comparison[];
  close(): Promise<void>;
}

/** Starts servers and clients, and resolves to the contenders and comparisons. */
export type Suite = (onProgress: (step: string) => void, options: SuiteOptions) => Promise<Contest>;

/** When and how results were measured. */
export interface Measurement extends MeasuredCode {
  readonly date: string;
  readonly rounds: number;

  /** Milliseconds of one contender in one round. */
  readonly block: number;
}

/** What `--json` prints. */
export interface SuiteReport {
  readonly suite: string;

  /** Of a suite that was measured alone, after the others. */
  readonly measured?: Measurement;

  /** Empty if nothing was measured. */
  readonly server: string;
  readonly notes: readonly string[];
  readonly counts: Readonly<Record<string, number>>;
  readonly results: readonly Result[];
  readonly ratios: readonly Ratio[];

  /** Of the contenders whose aims are missed. */
  readonly profiles?: readonly Profiled[];
}
