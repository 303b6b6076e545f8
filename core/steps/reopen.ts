import type { RunDetails } from "../journal/queries.ts";
import type { StepRecord } from "../journal/records.ts";
import { originalKey } from "../journal/superseded.ts";
import { quote } from "../lock/errors.ts";
import { decodeError } from "./codec.ts";
import { TerminalError } from "./errors.ts";
import { stepKeyOf, undoneKey } from "./step-keys.ts";

/**
 * Returns the keys of the records that a retry of the run supersedes: all from the first one of the step that failed the
 * run, or of a step that was undone. Results among them are used again when the code reaches their steps, unless the
 * steps were undone.
 */
export function supersededByRetry(run: RunDetails): readonly string[] {
  if (run.status === "blocked") return [];
  const records = currentRecords(run);
  if (failedUndos(records).length > 0) {
    const which = failedUndos(records).map((key) => quote(undoneKey(key)));
    const advice = "retry the undos first";
    throw new TerminalError(
      "UNDO_FAILED",
      `run ${quote(run.runId)} has failed undos of ${which.join(", ")}; ${advice}`,
    );
  }
  const again = stepsToRepeat(run, records);
  const first = records.findIndex(
    (record) => record.kind === "failure" || again.has(stepKeyOf(record)),
  );
  return first < 0 ? [] : records.slice(first).map(({ key }) => key);
}

/** Returns the keys of the records of failed undos. */
export function supersededByUndoRetry(run: RunDetails): readonly string[] {
  const records = currentRecords(run);
  const failed = new Set(failedUndos(records));
  if (failed.size > 0) {
    return records.filter((record) => failed.has(stepKeyOf(record))).map(({ key }) => key);
  }
  throw new TerminalError("NO_FAILED_UNDO", `run ${quote(run.runId)} has no failed undo`);
}

/** The records that no retry has superseded, without the marks of forks. */
export function currentRecords({ records }: RunDetails): readonly StepRecord[] {
  return records.filter(({ key, kind }) => originalKey(key) === undefined && kind !== "fork");
}

/** Returns the keys of failed undos. */
export function failedUndos(records: readonly StepRecord[]): readonly string[] {
  return records
    .filter(({ kind, outcome }) => kind === "undo" && outcome === "failed")
    .map(({ key }) => key);
}

/** Returns the keys of the steps that were undone. */
export function undoneSteps(records: readonly StepRecord[]): ReadonlySet<string> {
  const undos = records.filter(({ kind, outcome }) => kind === "undo" && outcome === "ok");
  return new Set(undos.map(({ key }) => undoneKey(key)));
}

const keyOf = ({ key }: StepRecord) => key;

/** The step that failed the run, or all failed steps if it is not known, the steps that were undone, and the cancelled children. */
function stepsToRepeat(run: RunDetails, records: readonly StepRecord[]): ReadonlySet<string> {
  const { step, code } = decodeError(run.ending?.value);
  const hasFailed = (record: StepRecord) =>
    record.outcome === "failed" && record.kind !== "undo" && record.kind !== "failure";
  // A child that was stopped fails its parent's step with the same code.
  const isStopped = step === undefined && (code === "RUN_CANCELLED" || code === "RUN_TIMEOUT");
  const mayRepeat = (record: StepRecord) =>
    !isStopped || (record.kind !== "child" && decodeError(record.value).code === code);
  const failed = records.filter((record) => hasFailed(record) && mayRepeat(record)).map(keyOf);
  const cause = step !== undefined && failed.includes(step) ? [step] : failed;
  const failure = records.findIndex(({ kind }) => kind === "failure");
  // Children that were open when the run failed were cancelled with it.
  const cancelled = records
    .filter((record, i) => record.kind === "child" && failure >= 0 && i > failure)
    .map(({ key }) => key);
  return new Set([...cause, ...undoneSteps(records), ...cancelled]);
}
