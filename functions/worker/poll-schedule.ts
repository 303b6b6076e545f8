import type { Millis } from "../../core/lock/time.ts";

/** The shortest and the longest pause between two polls while no run is due. */
const MIN_PAUSE: Millis = 50;
const MAX_PAUSE: Millis = 200;

/** The shortest pause while a rate holds back runs: after it, a fast rate allows several claims. */
const RATE_PAUSE: Millis = 10;

/** The longest pause while the journal does not answer. */
const MAX_OUTAGE_PAUSE: Millis = 5_000;

/** The most wake-ups that are remembered. The next poll finds the other runs. */
const MAX_WAKE_UPS = 10_000;

/**
 * Decides when the worker polls the journal for due runs: at once while runs are due, with growing pauses while none
 * is, and when a run wakes up that this worker has parked. Half of a pause is random, so that workers do not poll in step.
 */
export class PollSchedule {
  #pollAt = 0;
  #idlePolls = 0;
  #outages = 0;
  #isNotified = false;
  #wakeUps: number[] = [];

  /** Milliseconds until the next poll. */
  get wait(): Millis {
    return Math.max(0, this.#pollAt - performance.now());
  }

  /** A poll begins. */
  polling(): void {
    this.#isNotified = false;
  }

  /**
   * The journal has answered. Without a claimed run, the next poll follows after a pause, and when the rate of a queue
   * allows the next claim in `heldFor`.
   */
  polled(claimed: number, heldFor: Millis = Number.POSITIVE_INFINITY): void {
    this.#outages = 0;
    const now = performance.now();
    this.#wakeUps = this.#wakeUps.filter((wakeAt) => wakeAt > now);
    // A run that became due during the poll may be missing from its answer.
    if (claimed > 0 || this.#isNotified) {
      this.#idlePolls = 0;
      this.#pollAt = 0;
      return;
    }
    const idleUntil = now + jittered(Math.min(MIN_PAUSE * 2 ** this.#idlePolls, MAX_PAUSE));
    const heldUntil = now + Math.max(heldFor, RATE_PAUSE);
    this.#pollAt = this.#wakeUps.reduce((a, b) => Math.min(a, b), Math.min(idleUntil, heldUntil));
    this.#idlePolls += 1;
  }

  /** A run may be due. An outage delays the next poll all the same. */
  notified(): void {
    this.#isNotified = true;
    if (this.#outages === 0) this.#pollAt = 0;
  }

  /** The journal has not answered. */
  failed(): void {
    const pause = Math.min(2 * MIN_PAUSE * 2 ** this.#outages, MAX_OUTAGE_PAUSE);
    this.#outages += 1;
    this.#pollAt = performance.now() + jittered(pause);
  }

  /** A run was parked for this time. */
  parked(wakeIn: Millis): void {
    if (!Number.isFinite(wakeIn) || this.#wakeUps.length >= MAX_WAKE_UPS) return;
    this.#wakeUps.push(performance.now() + wakeIn);
  }
}

function jittered(span: Millis): Millis {
  return span * (0.5 + Math.random() / 2);
}
