import type { Strategy } from "./strategy.ts";

/** What goes wrong while an order is handled. */
export type Fault =
  /** The identity service blocks for longer than the lock lives. */
  | "slow"
  /** The process is frozen (SIGSTOP) between the look at the stock and the sale, for longer than the lock lives. */
  | "freeze"
  /** The process is killed (SIGKILL) at that point. */
  | "kill-before"
  /** The process is killed right after the sale, before it can answer. */
  | "kill-after";

/** Everything a worker needs to know for one shop. */
export interface Shift {
  readonly store: string;
  readonly shop: string;
  readonly strategy: Strategy;
  readonly ttlMillis: number;
  readonly pauseMillis: number;
}

export interface Delivery {
  readonly orderId: string;
  readonly fault: Fault | undefined;
}

export type ToWorker =
  | { readonly type: "shift"; readonly shift: Shift }
  | { readonly type: "deliver"; readonly delivery: Delivery };

/** When the holder believed to be alone, in milliseconds of the monotonic clock that all processes share. */
export interface Section {
  readonly from: number;
  readonly to: number;
}

export type FromWorker =
  | { readonly type: "ready" }
  /** Sent before the process stops itself, so that somebody wakes it. */
  | { readonly type: "freezing" }
  /** Sent before the process kills itself: what it would have reported. */
  | { readonly type: "dying"; readonly section: Section | undefined }
  | {
      readonly type: "answer";
      readonly answer: Answer;
      readonly section: Section | undefined;
    }
  | { readonly type: "error"; readonly message: string };

/**
 * `sold`, `sold-out`: the buyer's answer. `busy`: no lock in time; `refused`: late. Both come again, as a queue
 * would deliver them.
 */
export type Answer = "sold" | "sold-out" | "busy" | "refused";
