import type { ParkReason } from "../journal/journal.ts";
import type { Millis } from "../lock/time.ts";

/** Thrown inside the engine, and never seen by a workflow: the run is to be parked. */
export class Suspension {
  readonly reason: ParkReason;
  readonly wakeIn: Millis;

  constructor(reason: ParkReason, wakeIn: Millis) {
    this.reason = reason;
    this.wakeIn = wakeIn;
  }
}

/** Thrown inside the engine, and never seen by a workflow: nothing more can be done with the run here and now. */
export class Breakdown {
  readonly error: unknown;

  constructor(error: unknown) {
    this.error = error;
  }
}
