import type { RunEvent } from "../../core/steps/events.ts";

/** The most steps of one request that are kept. */
const MOST_STEPS = 100;

/** Remembers which steps runs go through, as long as somebody follows them. */
export class Trail {
  readonly #followed = new Map<string, Set<string[]>>();

  /** For `createRuntime({ onEvent: trail.listen })`. */
  readonly listen = (event: RunEvent): void => {
    if (event.type !== "recorded") return;
    const { key, outcome, fence } = event.record;
    const step = [key, outcome, ...(fence === undefined ? [] : [fence])].join(" ");
    for (const steps of this.#followed.get(event.runId) ?? []) {
      if (steps.length < MOST_STEPS) steps.push(step);
    }
  };

  /** The run's steps from now on, until disposed: key, outcome and fences. */
  follow(runId: string): Disposable & { readonly steps: readonly string[] } {
    const steps: string[] = [];
    const followers = this.#followed.get(runId) ?? new Set();
    this.#followed.set(runId, followers.add(steps));
    const stop = () => {
      followers.delete(steps);
      if (followers.size === 0) this.#followed.delete(runId);
    };
    return { steps, [Symbol.dispose]: stop };
  }
}
