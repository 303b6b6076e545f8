import type { Strategy } from "./strategy.ts";
import type { TraceEvent } from "./trace.ts";

/** A fault during the handling of an order. */
export type Fault =
  /** The identity service takes longer than the lock's ttl. */
  | "slow"
  /** The process is frozen (SIGSTOP) between the read of the stock and the sale, for longer than the lock's ttl. */
  | "freeze"
  /** The process is killed (SIGKILL) between the read of the stock and the sale, or between SETNX and EXPIRE. */
  | "kill-before"
  /** The process is killed after the sale, before its answer. */
  | "kill-after";

/** The configuration of a worker for one shop. */
export interface WorkerConfig {
  readonly store: string;

  /** The store of the locks, if it is another one. */
  readonly locks: string | undefined;
  readonly shop: string;
  readonly strategy: Strategy;
  readonly ttlMillis: number;
  readonly pauseMillis: number;

  /** How long an order takes between the read of the stock and the sale, in milliseconds. */
  readonly workMillis: number;

  /** When the overloaded identity service answers the calls that it has blocked, in milliseconds since the start of the sale. */
  readonly answersAt: readonly number[];
}

export interface Delivery {
  readonly orderId: string;
  readonly fault: Fault | undefined;
}

/** A worker that handles one order at a time. */
export interface Worker {
  configure(config: WorkerConfig): Promise<void>;

  /** Handles an order of a sale that began at `startedAt`, by monotonicNow(). A frozen worker goes on after `onFreeze`. */
  handle(
    delivery: Delivery,
    startedAt: number,
    onFreeze: () => Promise<unknown>,
  ): Promise<HandledOrder>;
  stop(): void;
}

export type ToWorker =
  | { readonly type: "configure"; readonly config: WorkerConfig }
  | { readonly type: "deliver"; readonly delivery: Delivery; readonly startedAt: number }
  /** Sent to a stopped process, which reads it once it is continued. */
  | { readonly type: "wake" };

/**
 * The answer to an order. `busy`: no lock in time, or no answer of the store. `refused`: the fence or the version was late. Orders with these two answers are
 * redelivered, as by a queue. `stuck`: the lock is held for ever.
 */
export type OrderAnswer = "sold" | "sold-out" | "busy" | "refused" | "stuck";

/** The result of a delivery. `killed`: the process died while it handled the order. */
export interface HandledOrder {
  readonly answer: OrderAnswer | "killed";
  readonly trace: readonly TraceEvent[];
}

export type FromWorker =
  | { readonly type: "ready" }
  /** Sent by a process that waits for its parent to stop it. */
  | { readonly type: "freezing" }
  /** Sent before the process kills itself. */
  | { readonly type: "dying"; readonly handled: HandledOrder }
  | { readonly type: "answer"; readonly handled: HandledOrder }
  | { readonly type: "error"; readonly message: string };
