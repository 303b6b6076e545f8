import type { SQSBatchResponse, SQSEvent, SQSRecord } from "aws-lambda";
import type { Deadline } from "../../../core/lock/time.ts";
import {
  deadlineOf,
  LAST_WAIT,
  type LambdaContext,
  MIN_WORK_TIME,
  withinInvocation,
} from "../../invocation/invocation.ts";
import { mapConcurrent } from "../../invocation/map-concurrent.ts";
import { type Disposition, type Retry, retry, secondsUntilRetry } from "./disposition.ts";
import { groupIdOf, isFifo, receiveCountOf, recordsOf } from "./message.ts";
import type { CheckedOptions, QueueEvent } from "./options.ts";

/** Chunks of messages that are processed one after the other. */
export interface MessageGroup {
  readonly chunks: readonly Chunk[];

  /** On a FIFO queue, a retried message causes the messages behind it to be retried too. */
  readonly ordered: boolean;
}

/** Messages that are processed together. */
export type Chunk = readonly SQSRecord[];

/** The time limits of the invocation. */
export interface Invocation {
  readonly deadline: Deadline;

  /** Aborts when the response can wait no longer. */
  readonly signal: AbortSignal;
}

export interface BatchProcessor {
  group(records: readonly SQSRecord[]): readonly MessageGroup[];

  /** Returns a completion for each message of the chunk, in order. A rejection retries the whole chunk. */
  process(chunk: Chunk, invocation: Invocation): Promise<readonly Completion[]>;
}

/** The last part of the work for one message. Never rejects. */
type Completion = () => Disposition | Promise<Disposition>;

/** Completions per unordered chunk that run at a time. A function has 1,024 file descriptors. */
const MAX_COMPLETIONS = 50;

/**
 * Groups messages by key, in chunks of at most `maxChunk`. On a standard queue a group has all messages with one key.
 * On a FIFO queue the groups are the queue's own, and a chunk has consecutive messages with one key.
 */
export function groupMessages(
  records: readonly SQSRecord[],
  keyOf: (record: SQSRecord) => unknown,
  maxChunk: number,
): readonly MessageGroup[] {
  const ordered = records.some(isFifo);
  const groups = Map.groupBy(records, ordered ? groupIdOf : keyOf);
  return [...groups.values()].map((group) => ({
    chunks: chunksOf(group, keyOf, maxChunk),
    ordered,
  }));
}

function chunksOf(
  group: readonly SQSRecord[],
  keyOf: (record: SQSRecord) => unknown,
  maxChunk: number,
): readonly Chunk[] {
  const chunks: SQSRecord[][] = [];
  for (const record of group) {
    const last = chunks.at(-1);
    const fits = last?.[0] && last.length < maxChunk && keyOf(last[0]) === keyOf(record);
    if (fits) last.push(record);
    else chunks.push([record]);
  }
  return chunks;
}

/** Processes a batch within the invocation, and tells SQS which messages to deliver again. */
export async function processBatch(
  event: SQSEvent,
  context: LambdaContext,
  options: CheckedOptions,
  processor: BatchProcessor,
): Promise<SQSBatchResponse> {
  return new Batch(recordsOf(event), context, options, processor).process();
}

/** The messages of one event. No state is kept for the next event. */
class Batch {
  readonly #records: readonly SQSRecord[];
  readonly #options: CheckedOptions;
  readonly #processor: BatchProcessor;
  readonly #deadline: Deadline;
  readonly #begun = new Set<SQSRecord>();
  readonly #done = new Set<SQSRecord>();
  readonly #delayed: { readonly record: SQSRecord; readonly seconds: number }[] = [];

  /** Work that goes on decides nothing any more: SQS delivers its message again. */
  #isOver = false;

  constructor(
    records: readonly SQSRecord[],
    context: LambdaContext,
    options: CheckedOptions,
    processor: BatchProcessor,
  ) {
    this.#records = records;
    this.#options = options;
    this.#processor = processor;
    this.#deadline = deadlineOf(context, options.reserve);
  }

  /**
   * Never rejects because of a message: a rejection would deliver all messages again, the finished ones too. For the
   * same reason work that hangs is abandoned after the deadline. The fences refuse its late writes.
   */
  async process(): Promise<SQSBatchResponse> {
    await this.#bounded(1 / 2, (signal) => this.#processGroups(signal));
    const failed = this.#records.filter((record) => !this.#done.has(record));
    this.#tellAbandoned(failed);
    this.#isOver = true;
    await this.#bounded(LAST_WAIT, () => this.#delayAll());
    const ids = new Set(failed.map(({ messageId }) => messageId));
    return { batchItemFailures: [...ids].map((itemIdentifier) => ({ itemIdentifier })) };
  }

  #tellAbandoned(failed: readonly SQSRecord[]): void {
    const delayed = new Set(this.#delayed.map(({ record }) => record));
    const ahead = new Map<unknown, Redelivery>();
    for (const record of failed) {
      if (delayed.has(record)) continue;
      const group = isFifo(record) ? groupIdOf(record) : record;
      ahead.set(group, this.#abandon(record, ahead.get(group)));
    }
  }

  /** SQS delivers a message whose work goes on again after the visibility timeout. */
  #abandon(record: SQSRecord, ahead: Redelivery | undefined): Redelivery {
    if (this.#begun.has(record)) {
      const error = new Error("the work was not done when the invocation was over");
      return this.#redeliver(record, { reason: "error", error, seconds: undefined });
    }
    if (ahead) return this.#redeliver(record, { ...ahead, reason: "behind" });
    return this.#retry(record, retry("unstarted"));
  }

  /** Waits for `work` until `part` of the reserve is used up. */
  async #bounded(part: number, work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    const over = new Error("the invocation is over");
    try {
      await withinInvocation(this.#deadline, this.#options.reserve * part, work, over);
    } catch (error) {
      if (error !== over) throw error;
    }
  }

  async #processGroups(signal: AbortSignal): Promise<void> {
    const groups = this.#processor.group(this.#records);
    await mapConcurrent(groups, this.#options.concurrency, (group) =>
      this.#processGroup(group, { deadline: this.#deadline, signal }),
    );
  }

  async #processGroup({ chunks, ordered }: MessageGroup, invocation: Invocation): Promise<void> {
    let ahead: Redelivery | undefined;
    for (const chunk of chunks) {
      const completions = ahead ? [] : await this.#processChunk(chunk, invocation);
      const settle = async ([i, record]: [number, SQSRecord]) => {
        const redelivery = ahead
          ? this.#redeliver(record, { ...ahead, reason: "behind" })
          : await this.#apply(record, await this.#complete(completions[i]));
        if (ordered) ahead = redelivery;
      };
      await mapConcurrent([...chunk.entries()], ordered ? 1 : MAX_COMPLETIONS, settle);
    }
  }

  async #processChunk(chunk: Chunk, invocation: Invocation): Promise<readonly Completion[]> {
    if (this.#deadline.remaining() < MIN_WORK_TIME)
      return chunk.map(() => () => retry("unstarted"));
    for (const record of chunk) this.#begun.add(record);
    try {
      return await this.#processor.process(chunk, invocation);
    } catch (error) {
      return chunk.map(() => () => retry("error", 0, error));
    }
  }

  /** Does not start after the deadline: the message is delivered again in any case. */
  async #complete(completion: Completion = () => retry("error")): Promise<Disposition> {
    return this.#deadline.remaining() > 0 ? completion() : retry("unstarted");
  }

  /** Resolves to the redelivery that the messages behind this one must wait for, if any. */
  async #apply(record: SQSRecord, disposition: Disposition): Promise<Redelivery | undefined> {
    if (this.#isOver) return undefined;
    if (disposition.kind === "poison") return this.#handOver(record, disposition.error);
    if (disposition.kind === "retry") return this.#retry(record, disposition);
    this.#done.add(record);
    return undefined;
  }

  async #handOver(record: SQSRecord, error: unknown): Promise<Redelivery | undefined> {
    const { poison } = this.#options;
    this.#tell({ type: "poison", record, error });
    if (!poison?.to) return this.#leaveToRedrive(record);
    try {
      await poison.to({ record, error });
      this.#done.add(record);
      return undefined;
    } catch (failure) {
      this.#tell({ type: "hook-failed", record, error: failure });
      return this.#retry(record, retry("error", 0, failure));
    }
  }

  /** The message never succeeds, so that those behind it need not wait. On a FIFO queue it is in their way. */
  #leaveToRedrive(record: SQSRecord): undefined {
    const backoff = secondsUntilRetry(retry("error"), receiveCountOf(record));
    this.#delayed.push({ record, seconds: isFifo(record) ? 1 : backoff });
  }

  #retry(record: SQSRecord, planned: Retry): Redelivery {
    const { reason, error } = planned;
    const seconds = secondsUntilRetry(planned, receiveCountOf(record));
    return this.#redeliver(record, { reason, error, seconds });
  }

  #redeliver(record: SQSRecord, redelivery: Redelivery): Redelivery {
    const { seconds } = redelivery;
    this.#tell({ type: "retry", record, ...redelivery });
    if (seconds !== undefined) this.#delayed.push({ record, seconds });
    return redelivery;
  }

  #tell(event: QueueEvent): void {
    if (!this.#isOver) this.#options.onEvent(event);
  }

  async #delayAll(): Promise<void> {
    const { delay, onEvent } = this.#options;
    const bySeconds = Map.groupBy(this.#delayed, ({ seconds }) => seconds);
    const delays = [...bySeconds].map(async ([seconds, delayed]) => {
      const records = delayed.map(({ record }) => record);
      try {
        await delay?.(records, seconds);
      } catch (error) {
        for (const record of records) onEvent({ type: "hook-failed", record, error });
      }
    });
    await Promise.all(delays);
  }
}

interface Redelivery extends Omit<Retry, "kind" | "wakeIn"> {
  /** Undefined: after the queue's visibility timeout. */
  readonly seconds: number | undefined;
}
