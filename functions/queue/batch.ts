import type { SQSBatchResponse, SQSEvent, SQSRecord } from "aws-lambda";
import { deadline as abortAfter, race } from "../../core/lock/abort.ts";
import type { Deadline } from "../../core/lock/time.ts";
import { deadlineOf, type LambdaContext, LEAST_WORK } from "../lambda/invocation.ts";
import { someAtATime } from "../lambda/some-at-a-time.ts";
import { receivesOf, recordsOf } from "./message.ts";
import type { CheckedOptions } from "./options.ts";
import { type Later, later, secondsUntil, type Verdict } from "./verdict.ts";

/** Messages that are done one after the other, some of them together. */
export interface Line {
  readonly units: readonly Unit[];

  /** Whether those behind a message that comes again come again too. */
  readonly ordered: boolean;
}

export type Unit = readonly SQSRecord[];

/** What a unit is carried by. */
export interface Invocation {
  readonly deadline: Deadline;

  /** Aborts when the answer can wait no longer. */
  readonly signal: AbortSignal;
}

export interface Work {
  arrange(records: readonly SQSRecord[]): readonly Line[];

  /** What comes of each of the unit's messages, in their order. When it rejects, all of them come again. */
  carry(unit: Unit, invocation: Invocation): Promise<readonly Finish[]>;
}

/** The last of the work for one message. It never rejects. */
type Finish = () => Verdict | Promise<Verdict>;

/** How many messages of a unit are finished at a time, unless they are ordered: a function has 1,024 file descriptors. */
const MOST_FINISHES = 50;

/** Carries a batch as far as the invocation allows, and tells SQS which of its messages are to come again. */
export async function answerBatch(
  event: SQSEvent,
  context: LambdaContext,
  options: CheckedOptions,
  work: Work,
): Promise<SQSBatchResponse> {
  return new Batch(recordsOf(event), context, options, work).answer();
}

/** One event: nothing of it is kept for the next one. */
class Batch {
  readonly #records: readonly SQSRecord[];
  readonly #options: CheckedOptions;
  readonly #work: Work;
  readonly #deadline: Deadline;
  readonly #done = new Set<SQSRecord>();
  readonly #delayed: { readonly record: SQSRecord; readonly seconds: number }[] = [];

  constructor(
    records: readonly SQSRecord[],
    context: LambdaContext,
    options: CheckedOptions,
    work: Work,
  ) {
    this.#records = records;
    this.#options = options;
    this.#work = work;
    this.#deadline = deadlineOf(context, options.reserve);
  }

  /**
   * Never rejects for what is wrong with a message: then all of them would come again, those that are done too. For
   * the same reason it does not wait for what is stuck: once its time is over, that is left to the fences.
   */
  async answer(): Promise<SQSBatchResponse> {
    await this.#bounded(1 / 2, (signal) => this.#carryAll(signal));
    const failed = this.#records.filter((record) => !this.#done.has(record));
    await this.#bounded(5 / 6, () => this.#delayAll());
    const ids = new Set(failed.map(({ messageId }) => messageId));
    return { batchItemFailures: [...ids].map((itemIdentifier) => ({ itemIdentifier })) };
  }

  /** Waits no longer than until so much of the reserve is used up. */
  async #bounded(part: number, work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    const left = this.#deadline.remaining() + this.#options.reserve * part;
    const limit = abortAfter(left, () => new Error("the invocation is over"));
    try {
      await race(work(limit.signal), limit.signal);
    } catch (error) {
      if (error !== limit.signal.reason) throw error;
    } finally {
      limit[Symbol.dispose]();
    }
  }

  async #carryAll(signal: AbortSignal): Promise<void> {
    const lines = this.#work.arrange(this.#records);
    await someAtATime(lines, this.#options.concurrency, (line) =>
      this.#carryLine(line, { deadline: this.#deadline, signal }),
    );
  }

  async #carryLine({ units, ordered }: Line, invocation: Invocation): Promise<void> {
    let ahead: HoldUp | undefined;
    for (const unit of units) {
      const finishes = ahead ? [] : await this.#carry(unit, invocation);
      const settle = async ([i, record]: [number, SQSRecord]) => {
        const holdUp = ahead
          ? this.#comeAgain(record, { ...ahead, why: "behind" })
          : await this.#settle(record, await this.#finish(finishes[i]));
        if (ordered) ahead = holdUp;
      };
      await someAtATime([...unit.entries()], ordered ? 1 : MOST_FINISHES, settle);
    }
  }

  async #carry(unit: Unit, invocation: Invocation): Promise<readonly Finish[]> {
    if (this.#deadline.remaining() < LEAST_WORK) return unit.map(() => () => later("unstarted"));
    try {
      return await this.#work.carry(unit, invocation);
    } catch (error) {
      return unit.map(() => () => later("error", 0, error));
    }
  }

  /** Nothing of it is begun once the time is over: the message comes again in any case. */
  async #finish(finish: Finish = () => later("error")): Promise<Verdict> {
    return this.#deadline.remaining() > 0 ? finish() : later("unstarted");
  }

  /** Resolves to how those behind it are held up, if they are. */
  async #settle(record: SQSRecord, verdict: Verdict): Promise<HoldUp | undefined> {
    if (verdict.kind === "poison") return this.#handOver(record, verdict.error);
    if (verdict.kind === "done") this.#done.add(record);
    else {
      const { why, error } = verdict;
      return this.#comeAgain(record, {
        why,
        error,
        seconds: secondsUntil(verdict, receivesOf(record)),
      });
    }
    return undefined;
  }

  async #handOver(record: SQSRecord, error: unknown): Promise<HoldUp | undefined> {
    const { poison, onEvent } = this.#options;
    onEvent({ type: "poison", record, error });
    if (!poison) return { why: "behind", seconds: undefined };
    try {
      await poison.to({ record, error });
      this.#done.add(record);
      return undefined;
    } catch (failure) {
      onEvent({ type: "hook-failed", record, error: failure });
      return this.#comeAgain(record, {
        why: "error",
        error: failure,
        seconds: secondsUntil(later("error"), receivesOf(record)),
      });
    }
  }

  #comeAgain(record: SQSRecord, holdUp: HoldUp): HoldUp {
    const { seconds } = holdUp;
    this.#options.onEvent({ type: "later", record, ...holdUp });
    if (seconds !== undefined) this.#delayed.push({ record, seconds });
    return holdUp;
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

interface HoldUp extends Omit<Later, "kind" | "wakeIn"> {
  /** Undefined: until the queue's visibility timeout is over. */
  readonly seconds: number | undefined;
}
