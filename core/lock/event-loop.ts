import { sleep } from "./abort.ts";
import type { Millis } from "./time.ts";

type ScheduleTurn = (fn: () => void) => unknown;

/** Captured when the module is loaded, so that the fake timers of a test runner do not replace it. */
const schedule: ScheduleTurn =
  (globalThis as { readonly setImmediate?: ScheduleTurn }).setImmediate ?? globalThis.setTimeout;

/** Resolves in the next turn of the event loop: all code that awaits no I/O and no timer has run by then. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => void schedule(resolve));
}

/**
 * Resolves to true once `condition` holds, and to false after `patience` milliseconds without it.
 * An aborted signal ends the wait.
 *
 * The time is slept in naps, each of which is a turn of the event loop, so that code which awaits I/O gets its turns
 * on a busy machine as well.
 */
export async function eventually(
  condition: () => boolean,
  patience: Millis,
  signal?: AbortSignal,
): Promise<boolean> {
  const longest = patience / 10;
  let nap = Math.min(1, longest);
  for (let slept = 0; !condition() && slept < patience && !signal?.aborted; slept += nap) {
    nap = Math.min(2 * nap, longest);
    await sleep(nap, signal).catch(() => {});
  }
  return condition();
}
