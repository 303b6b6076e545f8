import { Breakdown, Suspension } from "../../core/steps/halt.ts";

/** How it went, for whom a body of `Around` has rejected. */
export interface Ending {
  readonly outcome: "failed" | "parked";

  /** What has gone wrong; nothing has where the run is only let go of. */
  readonly error?: unknown;
}

export function endingOf(thrown: unknown): Ending {
  if (thrown instanceof Suspension) return { outcome: "parked" };
  return { outcome: "failed", error: thrown instanceof Breakdown ? thrown.error : thrown };
}
