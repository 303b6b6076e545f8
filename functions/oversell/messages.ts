import type { Strategy } from "./strategy.ts";

/** A fault during the handling of an order. */
export type Fault =
  /** The identity service takes longer than the lock's ttl. */
  | "slow"
  /** The process is frozen (SIGSTOP) between the read of the stock and the sale, for longer than the lock's ttl. */
  | "freeze"
  /** The process is killed (SIGKILL) between the read of the stock and the sale. */
  | "kill-before"
  /** The process is killed after the sale, before its answer. */
  | "kill-after";

/** The configuration of a worker for one shop. */
export interface WorkerConfig {
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
  | { readonly type: "configure"; readonly config: WorkerConfig }
  | { readonly type: "deliver"; readonly delivery: Delivery };

/** The machine's monotonic clock, the same in all its processes, in milliseconds. */
export function monotonicNow(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** The time in which a worker considered itself the only holder, as monotonicNow() tells it. */
export interface CriticalSection {
  readonly from: number;
  readonly to: number;
}

export type FromWorker =
  | { readonly type: "ready" }
  /** Sent before the process freezes itself, so that its parent continues it. */
  | { readonly type: "freezing" }
  /** Sent before the process kills itself, with its critical section. */
  | { readonly type: "dying"; readonly section: CriticalSection | undefined }
  | {
      readonly type: "answer";
      readonly answer: OrderAnswer;
      readonly section: CriticalSection | undefined;
    }
  | { readonly type: "error"; readonly message: string };

/**
 * The answer to an order. `busy`: no lock in time. `refused`: the fence was late. Orders with these two answers are
 * redelivered, as by a queue.
 */
export type OrderAnswer = "sold" | "sold-out" | "busy" | "refused";
