import { keyPart } from "../journal/key-part.ts";
import { hashOf } from "./codec.ts";
import { undoneKey } from "./step-keys.ts";

/** The longest operation id of the inventory, in bytes. */
const LONGEST_KEY = 255;

/**
 * Returns a readable key if it is short enough, and a hash otherwise. The key of a step is its last part: that of a run
 * may have several, since a child's id is such a key. `generation` counts the undone earlier effects, and
 * `part` the run's histories.
 */
export function idempotencyKey(runId: string, key: string, generation = 0, part = 1): string {
  const ofPart = keyInPart(key, part);
  const fresh = generation === 0 ? ofPart : `${ofPart}@${generation}`;
  const step = undoneKey(fresh);
  const undo = fresh.slice(0, fresh.length - step.length);
  const text = `${runId}/${undo}${keyPart(step)}`;
  return new TextEncoder().encode(text).length <= LONGEST_KEY ? text : hashOf([runId, fresh]);
}

function keyInPart(key: string, part: number): string {
  // No step's key ends like this.
  return part === 1 ? key : `${key}@0@${part}`;
}

/**
 * Returns the id that a child had before "/" and "%" were escaped. Undefined if the id was the same, or may be that of
 * another child now.
 */
export function unescapedId(runId: string, key: string, part: number): string | undefined {
  return /\/|%(?!2F|25)/.test(key) ? `${runId}/${keyInPart(key, part)}` : undefined;
}
