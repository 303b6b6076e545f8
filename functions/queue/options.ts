import type { SQSRecord } from "aws-lambda";
import { checkWhole } from "../../core/lock/checks.ts";
import { listener } from "../../core/lock/listener.ts";
import type { Millis } from "../../core/lock/time.ts";
import { type ReserveOption, toReserve } from "../lambda/invocation.ts";
import type { QueueEvent } from "./verdict.ts";

/** What is the same for every handler of a queue. */
export interface BatchOptions extends ReserveOption {
  /** How many messages, groups of a FIFO queue, or skus at a time. Default 4. */
  readonly concurrency?: number;

  /**
   * Makes messages visible again after so many seconds, as `sqs().delay` does. Without it a message comes back only
   * after the whole visibility timeout of its queue.
   */
  readonly delay?: (records: readonly SQSRecord[], seconds: number) => Promise<unknown>;

  /** Without it, messages that can never succeed are reported as failed until the queue itself gives them up. */
  readonly poison?: PoisonOptions;

  /** Told of every message that is not simply done. What it throws is ignored. */
  readonly onEvent?: (event: QueueEvent) => void;
}

export interface PoisonOptions {
  /**
   * Takes over a message that can never succeed; once it has resolved, the message is done. It may be called again
   * for the same message when that is delivered twice.
   */
  readonly to: (poison: Poison) => Promise<unknown>;
}

export interface Poison {
  readonly record: SQSRecord;

  /** Why: with a `code` where it is one of ours. */
  readonly error: unknown;
}

export interface CheckedOptions extends BatchOptions {
  readonly concurrency: number;
  readonly reserve: Millis;
  readonly onEvent: (event: QueueEvent) => void;
}

/** Throws a TypeError or RangeError that names the option. */
export function checkOptions(options: BatchOptions): CheckedOptions {
  const { concurrency = 4 } = options;
  checkWhole("concurrency", concurrency, 1, 1_000);
  return {
    ...options,
    concurrency,
    reserve: toReserve(options),
    onEvent: listener(options.onEvent),
  };
}
