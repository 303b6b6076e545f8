import { bytesToHex } from "@noble/hashes/utils.js";
import type { StepRecord } from "../../../journal/records.ts";
import type { RunKey } from "../../../journal/runs.ts";
import { nextTurn } from "../../../lock/event-loop.ts";

export interface WrittenRecord {
  readonly record: StepRecord;

  /** The time of the write in microseconds since 1970. */
  readonly at: bigint;
}

/** One write whose answer is delivered in order. */
export interface PendingWrite extends Disposable {
  /** To be called before the write is sent: from then on the record may exist, even after a lost answer. */
  begin(): void;

  /** Takes `begin` back: the write was certainly not executed. */
  cancel(): void;

  /** Resolves after all earlier records of the run are delivered. */
  deliver(written: WrittenRecord): Promise<StepRecord>;
}

interface Answer extends WrittenRecord {
  /** Writes up to this number were in flight when this answer came, and may be earlier. */
  readonly upTo: number;
  resolve(): void;
}

/**
 * Delivers the answers to concurrent writes of a run in the order of their records. The workflow's code depends on the
 * order of answers, and a replay delivers the records in this order.
 */
export class AnswerOrder {
  readonly #runs = new Map<string, RunAnswers>();

  write({ runId, epoch }: RunKey): PendingWrite {
    const key = `${epoch} ${runId}`;
    const run = this.#runs.get(key) ?? new RunAnswers();
    this.#runs.set(key, run);
    run.users += 1;
    let number: number | undefined;
    return {
      begin() {
        number ??= run.begin();
      },
      cancel() {
        run.end(number);
        number = undefined;
      },
      deliver: (written) => run.deliver(number, written),
      [Symbol.dispose]: () => {
        run.end(number);
        run.users -= 1;
        if (run.users === 0) this.#runs.delete(key);
      },
    };
  }
}

/** The writes in flight of one run, and the answers that wait for them. */
class RunAnswers {
  readonly #inFlight = new Set<number>();
  readonly #answers: Answer[] = [];
  #last = 0;
  #isDelivering = false;
  users = 0;

  begin(): number {
    this.#last += 1;
    this.#inFlight.add(this.#last);
    return this.#last;
  }

  end(number: number | undefined): void {
    if (number !== undefined) this.#inFlight.delete(number);
    void this.#deliverAll();
  }

  async deliver(number: number | undefined, written: WrittenRecord): Promise<StepRecord> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#answers.push({ ...written, upTo: this.#last, resolve });
    this.#answers.sort(inOrder);
    this.end(number);
    await promise;
    return written.record;
  }

  async #deliverAll(): Promise<void> {
    if (this.#isDelivering) return;
    this.#isDelivering = true;
    for (let next = this.#takeNext(); next; next = this.#takeNext()) {
      next.resolve();
      // The code that awaits this answer runs before the next answer is known.
      await nextTurn();
    }
    this.#isDelivering = false;
  }

  #takeNext(): Answer | undefined {
    const [next] = this.#answers;
    const [oldest = Number.POSITIVE_INFINITY] = this.#inFlight;
    return next && oldest > next.upTo ? this.#answers.shift() : undefined;
  }
}

/** The order in which a claim reads the records. Concurrent ones may have the same time: SQLite's clock has milliseconds. */
function inOrder(a: WrittenRecord, b: WrittenRecord): number {
  if (a.at !== b.at) return a.at < b.at ? -1 : 1;
  return bytesOf(a.record.key) < bytesOf(b.record.key) ? -1 : 1;
}

const utf8 = new TextEncoder();

/** Returns a text that is before another one if the bytes of its key are. */
function bytesOf(key: string): string {
  return bytesToHex(utf8.encode(key));
}
