import type { ParkReason } from "../journal/journal.ts";
import { elapsedSince, instant, type Millis } from "../lock/time.ts";

/** Thrown inside the engine, and never seen by a workflow: the run is to be parked. */
export class Suspension {
  readonly reason: ParkReason;
  readonly #span: Millis;
  readonly #since = instant();

  constructor(reason: ParkReason, span: Millis) {
    this.reason = reason;
    this.#span = span;
  }

  /** From now: other branches may go on for long before the run is parked. */
  get wakeIn(): Millis {
    return Math.max(0, this.#span - elapsedSince(this.#since));
  }
}

/** Thrown inside the engine, and never seen by a workflow: nothing more can be done with the run here and now. */
export class Breakdown {
  readonly error: unknown;

  constructor(error: unknown) {
    this.error = error;
  }
}
