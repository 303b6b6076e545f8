import type { ForkRequest } from "../journal/changes.ts";
import { parentStepOf } from "../journal/child-result.ts";
import type { RunDetails } from "../journal/queries.ts";
import type { StepRecord } from "../journal/records.ts";
import { originalKey } from "../journal/superseded.ts";
import { quote } from "../lock/errors.ts";
import { decode } from "./codec.ts";
import { signalId } from "./context.ts";
import { TerminalError } from "./errors.ts";
import { currentRecords, failedUndos, undoneSteps } from "./reopen.ts";
import { forkKey, isFinal, isOfStep, stepKeyOf, stepName, undoneKey } from "./step-keys.ts";

type ForkPlan = Omit<ForkRequest, "runId" | "owner">;

/**
 * Returns what a fork of the run takes over: the results that were recorded before that of the step `from`, and the
 * signals that their steps or nobody has received.
 *
 * As in a retry, a step that was undone is executed anew, and the results after it are used again when the code reaches
 * their steps.
 */
export function planFork(run: RunDetails, from: string): ForkPlan {
  const records = currentRecords(run);
  const failure = records.findIndex(({ kind }) => kind === "failure");
  const isUndoing = failure >= 0 && run.ending === undefined;
  if (isUndoing) {
    const advice = "wait for its end";
    throw new TerminalError("RUN_UNDOING", `run ${quote(run.runId)} is being undone; ${advice}`);
  }
  const step = findStep(run, records, from);
  // Children that are recorded after the failure were cancelled with the run.
  const before = failure < 0 ? records : records.slice(0, failure);
  const results = before.filter((record) => isOfStep(record) && isFinal(record));
  const end = results.findIndex(({ key }) => key === step);
  const used = new Set(results.slice(0, end < 0 ? results.length : end).map(({ key }) => key));
  checkUndos(run, used, records);
  const isUsed = (record: StepRecord) => record.kind === "fork" || used.has(stepOf(record));
  const undone = undoneSteps(records);
  const first = records.findIndex((record) => isUsed(record) && undone.has(stepOf(record)));
  const again = new Set(first < 0 ? [] : records.slice(first).map(({ key }) => key));
  const keys = run.records.filter(isUsed).map(({ key }) => key);
  const marks = run.records.filter(({ kind }) => kind === "fork").length;
  return {
    step,
    keep: keys.filter((key) => !again.has(key)),
    supersede: keys.filter((key) => again.has(key)),
    signals: signalsFor(run, used),
    mark: {
      ...{ key: forkKey(marks + 1, run.runId), kind: "fork", outcome: "ok", attempt: 1 },
      value: undefined,
    },
  };
}

/** Finds a step by its key or by its name in `runs show`. */
function findStep(run: RunDetails, records: readonly StepRecord[], from: string): string {
  const steps = records.filter(isOfStep);
  const keys = new Set(steps.map(stepKeyOf));
  if (keys.has(from)) return from;
  const named = [...keys].find((key) => stepName(key) === from);
  if (named !== undefined) return named;
  const names = new Set(
    steps.filter(({ kind }) => kind !== "value").map((one) => stepName(stepKeyOf(one))),
  );
  const known = names.size > 0 ? `its steps are ${listOf([...names])}` : "it has no steps yet";
  throw new TerminalError(
    "UNKNOWN_STEP",
    `run ${quote(run.runId)} has no step ${quote(from)}; ${known}`,
  );
}

/** The most names in the error. */
const MOST_NAMES = 50;

function listOf(names: readonly string[]): string {
  const more = names.length > MOST_NAMES ? ` and ${names.length - MOST_NAMES} more` : "";
  return `${names.slice(0, MOST_NAMES).join(", ")}${more}`;
}

function checkUndos(
  { runId }: RunDetails,
  used: ReadonlySet<string>,
  records: readonly StepRecord[],
): void {
  const failed = failedUndos(records).filter((key) => used.has(undoneKey(key)));
  if (failed.length === 0) return;
  const which = failed.map((key) => quote(undoneKey(key))).join(", ");
  const advice = "retry the undos first, or fork from an earlier step";
  throw new TerminalError(
    "UNDO_FAILED",
    `run ${quote(runId)} has failed undos of ${which}; ${advice}`,
  );
}

/** Returns the numbers of all signals but those that other steps have received. */
function signalsFor({ records, signals }: RunDetails, used: ReadonlySet<string>): number[] {
  const received = new Set(
    records
      .filter((record) => record.kind === "signal" && !used.has(stepOf(record)))
      .map((record) => signalId(signalIn(stepOf(record)), dedupeIdOf(record))),
  );
  return signals.flatMap(({ number, name, dedupeId }) => {
    const child = parentStepOf(name);
    const isOurs = child === undefined ? !received.has(signalId(name, dedupeId)) : used.has(child);
    return isOurs ? [number] : [];
  });
}

/** The name of the signal that a step waits for. */
function signalIn(key: string): string {
  return stepName(key).replace(/#\d+$/, "");
}

function dedupeIdOf({ value }: StepRecord): string | undefined {
  return decode<{ readonly dedupeId?: string } | undefined>(value)?.dedupeId;
}

/** The step of a record, of an attempt, or of an undo, also from before a retry. */
function stepOf(record: StepRecord): string {
  return undoneKey(stepKeyOf({ ...record, key: originalKey(record.key) ?? record.key }));
}
