import type { SQSBatchItemFailure, SQSRecord } from "aws-lambda";
import { pause } from "../until.ts";
import type { Invoked } from "./environment.ts";
import type { LambdaFunction } from "./function.ts";
import type { Queue } from "./queue.ts";

export interface SourceOptions {
  readonly queue: Queue;
  readonly function: LambdaFunction;

  /** Default 10. */
  readonly batchSize?: number;

  /** The number of batches at a time. Default: the number of environments of the function. */
  readonly maximumConcurrency?: number;

  /** The messages of a standard queue that are delivered twice at the same time. */
  readonly twice?: () => boolean;

  /** Receives each invocation. */
  readonly onInvoked?: (invoked: { readonly type: string }, records: readonly SQSRecord[]) => void;
}

/** Connects a queue with a function that answers with the failed messages. */
export class EventSource implements AsyncDisposable {
  readonly #options: SourceOptions;
  readonly #running = new Set<Promise<void>>();
  readonly #polling: Promise<void>;
  #isOver = false;

  constructor(options: SourceOptions) {
    this.#options = options;
    this.#polling = this.#poll();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isOver = true;
    await this.#polling;
    await Promise.all(this.#running);
  }

  async #poll(): Promise<void> {
    const { queue, batchSize = 10, twice } = this.#options;
    const most = this.#options.maximumConcurrency ?? this.#options.function.concurrency;
    while (!this.#isOver) {
      const records = this.#running.size < most ? queue.receive(batchSize, twice) : [];
      if (records.length > 0) this.#run(this.#deliver(records));
      else await pause(5);
    }
  }

  #run(delivery: Promise<void>): void {
    const running = delivery.finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  async #deliver(records: readonly SQSRecord[]): Promise<void> {
    const { queue, onInvoked } = this.#options;
    const invoked = await this.#options.function.invoke({ Records: records });
    onInvoked?.(invoked, records);
    for (const { receiptHandle } of succeeded(invoked, records)) queue.delete(receiptHandle);
  }
}

/** No answer, or an answer without failures, is a success. Any other invalid answer fails the whole batch. */
function succeeded(invoked: { readonly type: string }, records: readonly SQSRecord[]) {
  if (invoked.type !== "response") return [];
  const { result } = invoked as Extract<Invoked, { type: "response" }>;
  const { batchItemFailures: failures } = Object(result) as { readonly batchItemFailures: unknown };
  if (!Array.isArray(failures ?? [])) return [];
  const failed = new Set(((failures ?? []) as readonly unknown[]).map(identifierOf));
  const known = new Set<unknown>(records.map(({ messageId }) => messageId));
  if (!failed.isSubsetOf(known)) return [];
  return records.filter(({ messageId }) => !failed.has(messageId));
}

function identifierOf(failure: unknown): unknown {
  return (Object(failure) as Partial<SQSBatchItemFailure>).itemIdentifier;
}
