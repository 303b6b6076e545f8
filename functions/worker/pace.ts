import type { Millis } from "../../core/lock/time.ts";

/** The shortest and the longest pause between two looks while nothing is due. */
const SHORTEST: Millis = 50;
const LONGEST: Millis = 1_000;

/** The longest pause while the journal does not answer. */
const LONGEST_OUTAGE: Millis = 5_000;

/** The most wake-ups that are kept in mind; those of other runs are found by the next look. */
const MOST_WAKES = 10_000;

/**
 * When to ask the journal for due runs: at once while there is work, ever more rarely while there is none, and when
 * a run wakes up that was parked here. Pauses are random by half, so that workers do not ask in step.
 */
export class Pace {
  #lookAt = 0;
  #idle = 0;
  #outages = 0;
  #wakes: number[] = [];

  /** Milliseconds until the next look. */
  get wait(): Millis {
    return Math.max(0, this.#lookAt - performance.now());
  }

  /** A run was taken: there may be more. */
  found(): void {
    this.#idle = 0;
    if (this.#outages === 0) this.#lookAt = 0;
  }

  /** The journal has answered. Unless something of it is found to be ours, there is a pause. */
  looked(): void {
    this.#outages = 0;
    const now = performance.now();
    this.#wakes = this.#wakes.filter((wakeAt) => wakeAt > now);
    const idleUntil = now + jittered(Math.min(SHORTEST * 2 ** this.#idle, LONGEST));
    this.#lookAt = this.#wakes.reduce((a, b) => Math.min(a, b), idleUntil);
    this.#idle += 1;
  }

  /** The journal has not answered. */
  failed(): void {
    const pause = Math.min(2 * SHORTEST * 2 ** this.#outages, LONGEST_OUTAGE);
    this.#outages += 1;
    this.#lookAt = performance.now() + jittered(pause);
  }

  /** A run was parked for this long. */
  parked(wakeIn: Millis): void {
    if (!Number.isFinite(wakeIn) || this.#wakes.length >= MOST_WAKES) return;
    this.#wakes.push(performance.now() + wakeIn);
  }
}

function jittered(span: Millis): Millis {
  return span * (0.5 + Math.random() / 2);
}
