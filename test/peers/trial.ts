import type { Random } from "../simulation/random.ts";

export interface TrialOptions<Name extends string> {
  readonly faults: readonly Name[];

  /** How often each fault is injected. */
  readonly rounds: number;

  /** The ttl of locks, and of executions, in milliseconds. */
  readonly ttl: number;

  /** Determines the order of the faults, and which process and which server each one meets. */
  readonly seed: number;
  readonly onProgress: (step: string) => void;
}

/** How long nothing may go on after a fault, in milliseconds. */
export const STUCK = 30_000;

/** Tries the faults in an order of the seed, and returns their outcomes in the order of the names. */
export async function inSeededOrder<Name extends string, Outcome>(
  { faults }: TrialOptions<Name>,
  random: Random,
  attempt: (fault: Name) => Promise<Outcome>,
): Promise<readonly Outcome[]> {
  const left = [...faults];
  const outcomes = new Map<Name, Outcome>();
  while (left.length > 0) {
    const [fault] = left.splice(random.below(left.length), 1) as [Name];
    outcomes.set(fault, await attempt(fault));
  }
  return faults.map((fault) => outcomes.get(fault) as Outcome);
}
