import type { RunEvent } from "../../core/steps/events.ts";

/** The most steps that are kept per request. */
const MAX_STEPS = 100;

/** Collects the steps of the runs that requests execute, for the access log. */
export class StepLog {
  readonly #followers = new Map<string, Set<string[]>>();

  /** For `createRuntime({ onEvent: stepLog.onEvent })`. */
  readonly onEvent = (event: RunEvent): void => {
    if (event.type !== "recorded") return;
    const { key, kind, outcome, fence } = event.record;
    if (kind === "step" && outcome === "started") return;
    const step = [key, outcome, ...(fence === undefined ? [] : [fence])].join(" ");
    for (const steps of this.#followers.get(event.runId) ?? []) {
      if (steps.length < MAX_STEPS) steps.push(step);
    }
  };

  /** Collects the run's steps until disposed: key, outcome and fences. */
  follow(runId: string): Disposable & { readonly steps: readonly string[] } {
    const steps: string[] = [];
    const followers = this.#followers.get(runId) ?? new Set();
    this.#followers.set(runId, followers.add(steps));
    const stop = () => {
      followers.delete(steps);
      if (followers.size === 0) this.#followers.delete(runId);
    };
    return { steps, [Symbol.dispose]: stop };
  }
}
