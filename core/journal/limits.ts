import { type Duration, toMillis } from "../lock/duration.ts";
import type { Millis } from "../lock/time.ts";
import type { WaitingRun } from "./turn-order.ts";

/** Limits of a queue, over all processes that claim its due runs. */
export interface QueueLimits {
  /** The most runs that are executed at a time. */
  readonly concurrency?: number | undefined;

  /** The most runs with the same key that are executed at a time. */
  readonly perKey?: number | undefined;

  /** At most `runs` claims per span on average, and in a row after a pause. `per` is at most a day. */
  readonly rate?: { readonly runs: number; readonly per: Duration } | undefined;

  /** The same for the claims of runs with the same key. */
  readonly ratePerKey?: { readonly runs: number; readonly per: Duration } | undefined;
}

type Rate = NonNullable<QueueLimits["rate"]>;

/** The time that one claim takes of a rate. */
export function costOf({ runs, per }: Rate): Millis {
  return toMillis("per", per) / runs;
}

/** A queue with limits, and what it has used of them. */
export interface LimitedQueue extends QueueLimits {
  /** The number of runs that are executed, by key; runs without a key under undefined. */
  readonly running: ReadonlyMap<string | undefined, number>;

  /** The time by which earlier claims have used the rate in advance, if above 0. */
  readonly aheadBy: Millis;

  /** The same of the rate per key. */
  readonly keysAheadBy: ReadonlyMap<string, Millis>;
}

/** Tells which runs the limits of their queues allow to claim, and counts them. */
export class Admission {
  readonly #queues: ReadonlyMap<string, QueueUse>;
  #retryIn = Number.POSITIVE_INFINITY;

  constructor(limited: ReadonlyMap<string, LimitedQueue>) {
    this.#queues = new Map([...limited].map(([queue, limits]) => [queue, new QueueUse(limits)]));
  }

  /** The time until a rate allows one of the runs that it has held back. Infinity if it has held back none. */
  get retryIn(): Millis {
    return this.#retryIn;
  }

  /** Returns the first `most` runs that may be claimed. */
  take<R extends Pick<WaitingRun, "queue" | "key">>(runs: Iterable<R>, most: number): readonly R[] {
    const taken: R[] = [];
    for (const run of runs) {
      if (taken.length === most) break;
      if (this.#admits(run)) taken.push(run);
    }
    return taken;
  }

  #admits({ queue, key }: Pick<WaitingRun, "queue" | "key">): boolean {
    const use = this.#queues.get(queue);
    if (use === undefined) return true;
    if (use.isFull(key)) return false;
    const wait = use.claimIn(key);
    if (wait > 0) this.#retryIn = Math.min(this.#retryIn, wait);
    else use.add(key);
    return wait <= 0;
  }
}

class QueueUse {
  readonly #limits: LimitedQueue;
  readonly #running: Map<string | undefined, number>;
  readonly #keysAheadBy: Map<string, Millis>;
  #total: number;
  #aheadBy: Millis;

  constructor(limits: LimitedQueue) {
    this.#limits = limits;
    this.#running = new Map(limits.running);
    this.#keysAheadBy = new Map(limits.keysAheadBy);
    this.#total = [...limits.running.values()].reduce((sum, count) => sum + count, 0);
    this.#aheadBy = Math.max(0, limits.aheadBy);
  }

  isFull(key: string | undefined): boolean {
    const { concurrency = Number.POSITIVE_INFINITY, perKey = Number.POSITIVE_INFINITY } =
      this.#limits;
    return this.#total >= concurrency || (key !== undefined && this.#ofKey(key) >= perKey);
  }

  /** The time until the rates allow a claim. */
  claimIn(key: string | undefined): Millis {
    const { rate, ratePerKey } = this.#limits;
    const ofKey = key === undefined ? 0 : waitOf(ratePerKey, this.#keyAheadBy(key));
    return Math.max(waitOf(rate, this.#aheadBy), ofKey);
  }

  add(key: string | undefined): void {
    const { rate, ratePerKey } = this.#limits;
    this.#total += 1;
    this.#running.set(key, this.#ofKey(key) + 1);
    if (rate) this.#aheadBy += costOf(rate);
    if (ratePerKey && key !== undefined) {
      this.#keysAheadBy.set(key, this.#keyAheadBy(key) + costOf(ratePerKey));
    }
  }

  #ofKey(key: string | undefined): number {
    return this.#running.get(key) ?? 0;
  }

  #keyAheadBy(key: string): Millis {
    return Math.max(0, this.#keysAheadBy.get(key) ?? 0);
  }
}

/** The time until a rate allows the next claim. */
function waitOf(rate: Rate | undefined, aheadBy: Millis): Millis {
  if (rate === undefined) return 0;
  const wait = aheadBy + costOf(rate) - toMillis("per", rate.per);
  // A rounding error must not cost a claim.
  return wait > costOf(rate) * 1e-6 ? wait : 0;
}
