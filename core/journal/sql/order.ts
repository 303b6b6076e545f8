import type { RunKey, StepRecord } from "../journal.ts";

/** A record that stands, and when it was written, in microseconds since 1970. */
export interface Written {
  readonly record: StepRecord;
  readonly at: bigint;
}

/** One write, whose answer is handed on in its turn. */
export interface Turn extends Disposable {
  /** To be called before it is sent: from then on it may stand, even if its answer is lost. */
  begin(): void;

  /** Resolves once all that stands before it has been handed on. */
  of(written: Written): Promise<StepRecord>;
}

interface Held extends Written {
  /** Writes up to this one may stand before it: they were under way when it was answered. */
  readonly upTo: number;
  handOn(): void;
}

/**
 * Hands on what was written at the same time in the order in which it stands, whichever was answered first: the
 * run's code goes by what it hears first, and has to hear it in the same order when it is replayed.
 */
export class Order {
  readonly #lanes = new Map<string, Lane>();

  turn({ runId, epoch }: RunKey): Turn {
    const name = `${epoch} ${runId}`;
    const lane = this.#lanes.get(name) ?? new Lane();
    this.#lanes.set(name, lane);
    lane.users += 1;
    let number: number | undefined;
    return {
      begin() {
        number ??= lane.open();
      },
      of: (written) => lane.handOn(number, written),
      [Symbol.dispose]: () => {
        lane.close(number);
        lane.users -= 1;
        if (lane.users === 0) this.#lanes.delete(name);
      },
    };
  }
}

/** The writes of one run. */
class Lane {
  readonly #open = new Set<number>();
  readonly #held: Held[] = [];
  #last = 0;
  #isMoving = false;
  users = 0;

  open(): number {
    this.#last += 1;
    this.#open.add(this.#last);
    return this.#last;
  }

  close(number: number | undefined): void {
    if (number !== undefined) this.#open.delete(number);
    void this.#move();
  }

  async handOn(number: number | undefined, written: Written): Promise<StepRecord> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#held.push({ ...written, upTo: this.#last, handOn: resolve });
    this.#held.sort(byTime);
    this.close(number);
    await promise;
    return written.record;
  }

  async #move(): Promise<void> {
    if (this.#isMoving) return;
    this.#isMoving = true;
    for (let next = this.#takeNext(); next; next = this.#takeNext()) {
      next.handOn();
      // So that nobody hears of the one after it sooner, by a shorter way.
      for (let turn = 0; this.#held.length > 0 && turn < TURNS; turn += 1) await undefined;
    }
    this.#isMoving = false;
  }

  #takeNext(): Held | undefined {
    const [next] = this.#held;
    const [oldest = Number.POSITIVE_INFINITY] = this.#open;
    return next && oldest > next.upTo ? this.#held.shift() : undefined;
  }
}

const TURNS = 50;

/** As the records are sorted when they are read. */
function byTime(a: Written, b: Written): number {
  if (a.at !== b.at) return a.at < b.at ? -1 : 1;
  return Buffer.compare(Buffer.from(a.record.key), Buffer.from(b.record.key));
}
