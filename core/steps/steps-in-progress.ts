import { MOST_IN_PROGRESS } from "../journal/journal.ts";
import type { StepInProgress } from "../journal/runs.ts";
import { after, type Millis } from "../lock/time.ts";

/** Steps that take less time are not put on record. */
const LONG: Millis = 1_000;

/**
 * The steps that an execution has in progress. The renewals of the run's lease report those that take long: once in a
 * second at most, a renewal is brought forward if they have changed.
 */
export class StepsInProgress implements Disposable {
  readonly #now: () => Date;
  readonly #renew: () => void;
  readonly #steps = new Map<string, StepInProgress>();
  #reported: readonly StepInProgress[] = [];
  #cancel: (() => void) | undefined;

  /** `now` reads the journal's clock. `renew` brings a renewal forward. */
  constructor(now: () => Date, renew: () => void) {
    this.#now = now;
    this.#renew = renew;
  }

  /** Notes the begin of an attempt or, with `waitsFor`, of its wait for a lock. */
  begin(key: string, waitsFor?: string): void {
    this.#steps.set(key, { key, since: this.#now(), waitsFor });
    this.#cancel ??= after(LONG, () => this.#check(), { idle: true });
  }

  end(key: string): void {
    this.#steps.delete(key);
  }

  /** Returns what the next renewal puts on record. */
  report(): readonly StepInProgress[] {
    this.#reported = this.#long();
    return this.#reported;
  }

  [Symbol.dispose](): void {
    this.#cancel?.();
  }

  #check(): void {
    const long = this.#long();
    const isReported =
      long.length === this.#reported.length && long.every((step, i) => step === this.#reported[i]);
    if (!isReported) this.#renew();
    this.#cancel = undefined;
    if (this.#steps.size > 0) this.#cancel = after(LONG, () => this.#check(), { idle: true });
  }

  #long(): readonly StepInProgress[] {
    // Timers and clocks differ by a millisecond.
    const latest = this.#now().getTime() - LONG + 2;
    const long = [...this.#steps.values()].filter(({ since }) => since.getTime() <= latest);
    return long.slice(0, MOST_IN_PROGRESS);
  }
}
