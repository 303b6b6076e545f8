import { hashOf } from "./codec.ts";

/** The longest operation id of the inventory, in bytes. */
const LONGEST_KEY = 255;

/**
 * Returns a readable key if it is short enough, and a hash otherwise. `generation` counts the undone earlier effects, and
 * `part` the run's histories.
 */
export function idempotencyKey(runId: string, key: string, generation = 0, part = 1): string {
  // No step's key ends like this.
  const ofPart = part === 1 ? key : `${key}@0@${part}`;
  const fresh = generation === 0 ? ofPart : `${ofPart}@${generation}`;
  const text = `${runId}/${fresh}`;
  return new TextEncoder().encode(text).length <= LONGEST_KEY ? text : hashOf([runId, fresh]);
}
