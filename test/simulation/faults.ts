import { MACHINE_FAULTS } from "./plan.ts";
import type { Random } from "./random.ts";

export const NETWORK_FAULTS = [
  "request refused",
  "request lost",
  "request late",
  "request twice",
  "answer lost",
  "answer late",
] as const;

export type NetworkFault = (typeof NETWORK_FAULTS)[number];

export const FAULTS = [...NETWORK_FAULTS, ...MACHINE_FAULTS, "store clock jump"] as const;

export type Fault = (typeof FAULTS)[number];

/** What happens to one request. */
export interface Fate {
  readonly fault: NetworkFault | undefined;

  /** The times of the request and of the answer on the way, in milliseconds. */
  readonly there: number;
  readonly back: number;

  /** The delay of a late or second message. */
  readonly late: number;

  /** When the client learns that its connection is lost; undefined: its own limit ends the request. */
  readonly cutAfter: number | undefined;
}

/** Draws the same count of numbers for each request: a spared one changes no other. */
export function drawFate(random: Random, rate: number, ttl: number, isSpared: boolean): Fate {
  const [isFaulty, fault] = [random.chance(rate), random.pick(NETWORK_FAULTS)];
  const [there, back] = [random.between(0.2, 4), random.between(0.2, 4)];
  const late = random.between(0.05, 2.5) * ttl;
  const [isCut, cut] = [random.chance(0.5), random.between(1, 30)];
  const happens = isFaulty && !isSpared;
  return {
    fault: happens ? fault : undefined,
    there,
    back,
    late,
    cutAfter: isCut ? there + cut : undefined,
  };
}
