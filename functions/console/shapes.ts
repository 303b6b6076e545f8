import type { StockLevel } from "../../core/inventory/inventory.ts";
import type { QueueLimits } from "../../core/journal/limits.ts";
import type { QueueDepth } from "../../core/journal/queries.ts";
import type { LockInfo } from "../../core/lock/lock.ts";
import type { Millis } from "../../core/lock/time.ts";

/** The answers of the console's server to the page, before JSON: dates become text, bigints digits. */

/** The part of a store that some stores do not have. */
export type ConsolePart = "inventory" | "journal";

export interface ConsoleInfo {
  /** The URLs of the stores, without secrets. */
  readonly store: string;
  readonly locks: string;
  readonly has: readonly ConsolePart[];
  readonly readOnly: boolean;

  /** Whether processes of holders may be frozen and killed. */
  readonly isDev: boolean;
}

/** At most MOST_ROWS locks, of `total` ones that match. */
export interface LocksAnswer<Lock = LockInfo> {
  readonly locks: readonly Lock[];
  readonly total: number;
}

export interface StockAnswer {
  readonly levels: readonly StockLevel[];

  /** Whether there are more after the last one. */
  readonly hasMore: boolean;
}

/** At most MOST_ROWS queues with open runs, of `total` ones that match, each with its limits. */
export interface QueuesAnswer {
  readonly queues: readonly (QueueDepth & QueueLimits)[];
  readonly total: number;
}

/** A bar of a run's waterfall. Times are in milliseconds from the run's start. */
export interface Bar {
  readonly at: Millis;
  readonly waitedFrom: Millis;
  readonly from: Millis;
  readonly step: string;
  readonly label: string;
  readonly style: string;
  readonly took?: Millis;
  readonly waited?: Millis;
  readonly fence?: string;
  readonly error?: string;

  /** The busy lock of a step that waits for it. */
  readonly waitsFor?: string;
  readonly isResumed: boolean;
}

/** The most rows of a table: a page draws them in a few milliseconds. */
export const MOST_ROWS = 200;
