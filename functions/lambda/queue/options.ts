import type { SQSRecord } from "aws-lambda";
import { checkFunction, checkWhole } from "../../../core/lock/checks.ts";
import { listener } from "../../../core/lock/listener.ts";
import type { OptionNames } from "../../../core/lock/options.ts";
import type { Millis } from "../../../core/lock/time.ts";
import { type ReserveOption, reserveOf } from "../../invocation/invocation.ts";
import { logFailure } from "../../telemetry/log-line.ts";

/** The options that every handler of a queue has. */
export interface BatchOptions extends ReserveOption {
  /** The number of messages, groups of a FIFO queue, or skus that are processed at a time. Default 4. */
  readonly concurrency?: number;

  /**
   * Makes messages visible again after `seconds`, as `sqs().delay` does. Without `delay`, SQS delivers a message again
   * only after the visibility timeout of its queue.
   */
  readonly delay?: (records: readonly SQSRecord[], seconds: number) => Promise<unknown>;

  /**
   * For messages that can never succeed. Without it they are delivered again until the queue's redrive policy moves them
   * to the dead-letter queue; on a FIFO queue every second, and the messages behind them go on.
   */
  readonly poison?: PoisonOptions;

  /**
   * Called for every message that is retried or poison. Errors of the listener are ignored. Default: failures are written to
   * stderr, one line of JSON each, with the stack of the error; a busy lock, or a run that waits, is none.
   */
  readonly onEvent?: (event: QueueEvent) => void;
}

export const BATCH_OPTIONS = {
  concurrency: true,
  delay: true,
  poison: true,
  onEvent: true,
  reserve: true,
} satisfies OptionNames<BatchOptions>;

export interface PoisonOptions {
  /**
   * Takes over a message that can never succeed. The message is done when the promise resolves. SQS may deliver a
   * message twice, so `to` may be called again for the same message. Default: the queue's redrive policy.
   */
  readonly to?: (message: PoisonMessage) => Promise<unknown>;
}

export interface PoisonMessage {
  readonly record: SQSRecord;

  /** The cause. Errors of this package have a `code`. */
  readonly error: unknown;
}

export type QueueEvent =
  | {
      readonly type: "retry";
      readonly record: SQSRecord;
      readonly reason: RetryReason;
      readonly error?: unknown;

      /** Undefined: after the queue's visibility timeout. */
      readonly seconds: number | undefined;
    }
  | { readonly type: "poison"; readonly record: SQSRecord; readonly error: unknown }
  /**
   * A hook failed, and the message is delivered again: after the visibility timeout if it was `delay`, after a second or
   * more if it was `poison.to`.
   */
  | { readonly type: "hook-failed"; readonly record: SQSRecord; readonly error: unknown };

/**
 * - `busy`: another owner has the lock or executes the run. - `parked`: the run waits for an event.
 * - `unstarted`: too little of the invocation was left. - `behind`: an earlier message of the group is retried.
 * - `error`: another failure, such as a store that does not answer, a blocked run, or work that the invocation has outlived.
 */
export type RetryReason = "busy" | "parked" | "unstarted" | "behind" | "error";

export interface CheckedOptions extends BatchOptions {
  readonly concurrency: number;
  readonly reserve: Millis;
  readonly onEvent: (event: QueueEvent) => void;
}

/** Throws a TypeError or RangeError that names the invalid option. */
export function checkOptions(options: BatchOptions): CheckedOptions {
  const { delay, poison } = options;
  if (delay !== undefined) checkFunction("delay", delay);
  if (poison?.to !== undefined) checkFunction("poison.to", poison.to);
  const { concurrency = 4 } = options;
  checkWhole("concurrency", concurrency, 1, 1_000);
  return {
    ...options,
    concurrency,
    reserve: reserveOf(options),
    onEvent: listener(options.onEvent ?? logFailedMessage),
  };
}

function logFailedMessage(event: QueueEvent): void {
  if (event.type !== "retry" || event.reason === "error") logFailure("message", event);
}
