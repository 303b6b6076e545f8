import type { StepRecord } from "../journal/records.ts";
import type { ClaimedRun } from "../journal/runs.ts";
import { effectOf, mayHaveHadEffect, type StepEffect } from "./effect.ts";
import type { ErrorInfo } from "./errors.ts";
import type { History } from "./history.ts";
import type { Step } from "./step.ts";

/** A step whose effect is to be taken back. */
export interface Undoable {
  readonly step: Step;
  readonly effect: "done" | "unknown";
}

/** The execution of the steps. */
interface Execution {
  readonly history: History;
  readonly claimed: ClaimedRun;

  /** Whether the execution has written a record. */
  readonly hasWritten: boolean;
  decode<T>(text: string | undefined): T;
}

/** The steps that a workflow's code has reached, and what is known of their effects. */
export class StepEffects {
  readonly #execution: Execution;
  readonly #steps: Step[] = [];

  constructor(execution: Execution) {
    this.#execution = execution;
  }

  /** Registers a step before its first attempt, so that its effect is known or taken back when the run fails. */
  register(step: Step): void {
    this.#steps.push(step);
    if (this.#mayHaveBegun(step)) this.#execution.history.begin(step.key);
  }

  /** Whether a crashed execution may have begun an attempt of the step, whose start is not recorded. */
  #mayHaveBegun({ key, undo, atMostOnce, kind }: Step): boolean {
    const { history, claimed, hasWritten } = this.#execution;
    const isUnrecorded = !undo && !atMostOnce && kind === "step" && !history.record(key);
    return isUnrecorded && claimed.takenOver && !hasWritten;
  }

  /** Whether a step has no result. */
  get hasOpen(): boolean {
    return this.#steps.some(({ key }) => !this.#execution.history.record(key));
  }

  of(step: Step): Promise<StepEffect> {
    const { history, claimed } = this.#execution;
    return effectOf(step, history, { epoch: claimed.epoch, errorOf: this.#errorOf });
  }

  readonly #errorOf = async ({ outcome, value }: StepRecord) =>
    outcome === "retry"
      ? this.#execution.decode<{ error: ErrorInfo }>(value).error
      : this.#execution.decode<ErrorInfo>(value);

  /** Resolves to the steps to undo, the latest one first, and whether a step without an undo has an unknown effect. */
  async toUndo(): Promise<{
    readonly undoable: readonly Undoable[];
    readonly isUnclear: boolean;
  }> {
    const { history } = this.#execution;
    const undoable: Undoable[] = [];
    let isUnclear = false;
    for (const step of this.#steps) {
      const effect = await this.of(step);
      if (effect !== "not-done" && step.undo) undoable.push({ step, effect });
      else if (effect === "unknown") isUnclear = true;
    }
    for (const key of history.unreached) {
      const superseded = history.supersededOf(key);
      const isStep = superseded.some(({ kind }) => kind === "step");
      if (isStep && (await mayHaveHadEffect(superseded, this.#errorOf))) isUnclear = true;
    }
    const positions = new Map(history.keys.map((key, index) => [key, index]));
    // A step without a result was in progress after all others.
    const positionOf = ({ step }: Undoable) => positions.get(step.key) ?? positions.size;
    const latestFirst = undoable.toReversed().sort((a, b) => positionOf(b) - positionOf(a));
    return { undoable: latestFirst, isUnclear };
  }
}
