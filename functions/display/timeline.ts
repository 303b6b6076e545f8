import type { RunDetails } from "../../core/journal/queries.ts";
import type { StepRecord } from "../../core/journal/records.ts";
import type { RunSignal, StepInProgress } from "../../core/journal/runs.ts";
import { originalKey } from "../../core/journal/superseded.ts";
import type { Millis } from "../../core/lock/time.ts";
import type { ErrorInfo } from "../../core/steps/errors.ts";
import { originIn, stepName } from "../../core/steps/step-keys.ts";
import { shownError, shownFailure, shownValue } from "../json/shown-value.ts";

/** The kind of an entry, which decides its colour and bar. */
export type EntryStyle = "done" | "retried" | "failed" | "undone" | "begun" | "waiting" | "noted";

/** A line of a run's timeline. Times are in milliseconds from the run's start. */
export interface TimelineEntry {
  readonly at: Millis;

  /** The start of the wait for locks, and the start of the work. */
  readonly waitedFrom: Millis;
  readonly from: Millis;
  readonly step: string;
  readonly label: string;
  readonly style: EntryStyle;
  readonly took: Millis | undefined;
  readonly waited: Millis | undefined;
  readonly fence: string | undefined;
  readonly error: string | undefined;

  /** The busy lock of a step that waits for it. */
  readonly waitsFor?: string | undefined;

  /** Whether the entry is the first one of another execution of the run. */
  readonly isResumed: boolean;
}

/** Returns the timeline of a run, in the order of its journal. */
export function timelineOf(run: RunDetails): readonly TimelineEntry[] {
  const keys = new Set(run.records.map(({ key }) => key));
  const starts = new Map(run.records.filter(isStarted).map((one) => [stepOf(one.key), one]));
  const inProgress = run.inProgress.filter(({ key }) => !keys.has(key));
  // The entry of an ended step or attempt includes its start, that of a step in progress says more.
  const hasEnded = ({ key }: StepRecord) =>
    keys.has(stepOf(key)) ||
    keys.has(key.replace(/ started$/, "")) ||
    inProgress.some((step) => step.key === stepOf(key));
  const records = run.records.filter((one) => !isStarted(one) || !hasEnded(one));
  let epoch = records[0]?.epoch;
  const entries = records.map((record) => {
    const isFork = record.kind === "fork";
    const isResumed = !isFork && epoch !== undefined && record.epoch !== epoch;
    epoch = isFork ? undefined : record.epoch;
    return { ...entryOf(run, record, starts.get(record.key)), isResumed };
  });
  const signals = run.signals.map((signal) => entryOfSignal(run, signal));
  const ongoing = inProgress.map((step) => entryOfOngoing(run, step));
  return [...entries, ...signals, ...ongoing].sort((a, b) => a.at - b.at);
}

/** The bar of a step in progress ends now or, if its process was lost, with the lease. */
function entryOfOngoing(run: RunDetails, step: StepInProgress): TimelineEntry {
  const { key, since: begunAt, waitsFor } = step;
  const from = since(run, begunAt);
  const at = Math.max(from, since(run, new Date(Math.min(+run.now, +(run.dueAt ?? run.now)))));
  const isWaiting = waitsFor !== undefined;
  return {
    ...{ at, waitedFrom: from, from: isWaiting ? at : from },
    step: stepLabel({ key, kind: key.startsWith("~undo/") ? "undo" : "step" }),
    label: isWaiting ? "waits" : "begun",
    style: isWaiting ? "waiting" : "begun",
    took: isWaiting ? undefined : at - from,
    waited: isWaiting ? at - from : undefined,
    ...{ fence: undefined, error: undefined, waitsFor, isResumed: false },
  };
}

function entryOf(
  run: RunDetails,
  record: StepRecord,
  startRecord: StepRecord | undefined,
): Omit<TimelineEntry, "isResumed"> {
  const { took, waited } = record;
  const recordedAt = since(run, record.at);
  const isPause = record.kind === "sleep" || record.kind === "signal";
  const isPending = isPause && isStarted(record);
  const at = isPending ? pendingUntil(run, record) : recordedAt;
  const start = startRecord && isPause ? since(run, startRecord.at) : recordedAt;
  const from = Math.max(0, start - (took ?? 0));
  const isError = record.outcome === "failed" || record.outcome === "retry";
  return {
    at,
    from: isPending ? recordedAt : from,
    waitedFrom: isPending ? recordedAt : Math.max(0, from - (waited ?? 0)),
    step: stepLabel(record),
    label: outcomeLabel(record),
    style: styleOf(record),
    took: isPause && startRecord ? at - from : took,
    waited,
    fence: record.fence,
    error: isError ? errorOf(record) : undefined,
  };
}

/** Returns the end of the bar of a pending pause: now, or the end of the pause. */
function pendingUntil(run: RunDetails, record: StepRecord): Millis {
  const recordedAt = since(run, record.at);
  return Math.max(recordedAt, Math.min(recordedAt + durationOf(record), since(run, run.now)));
}

function entryOfSignal(run: RunDetails, { name, at }: RunSignal): TimelineEntry {
  const when = since(run, at);
  return {
    ...{ at: when, from: when, waitedFrom: when },
    step: `◆ ${name}`,
    label: "arrived",
    style: "noted",
    ...{ took: undefined, waited: undefined, fence: undefined, error: undefined },
    isResumed: false,
  };
}

type Label = (record: StepRecord) => string;

const attemptLabel: Label = ({ outcome, attempt }) => {
  return attempt > 1 || outcome === "retry" ? `${outcome} #${attempt}` : outcome;
};

/** The labels of records, by their kind. */
const LABELS: Readonly<Record<StepRecord["kind"], Label>> = {
  step: attemptLabel,
  tx: attemptLabel,
  child: (record) => (record.outcome === "ok" ? "child ok" : "child failed"),
  value: () => "noted",
  sleep: (record) => (isStarted(record) ? "asleep" : "slept"),
  signal(record) {
    if (isStarted(record)) return "waits";
    if (record.outcome === "retry") return "discarded";
    if (record.outcome === "failed") return "failed";
    return isTimedOut(record) ? "timed out" : "received";
  },
  undo: (record) => (record.outcome === "ok" ? "undone" : attemptLabel(record)),
  failure: () => "run failed",
  fork: () => "forked",
  refusal: () => "refused",
};

/** Returns a short label for the outcome of a record. */
export function outcomeLabel(record: StepRecord): string {
  return LABELS[record.kind](record);
}

function styleOf(record: StepRecord): EntryStyle {
  const { kind, outcome } = record;
  if (kind === "failure" || outcome === "failed") return "failed";
  if (outcome === "retry") return "retried";
  if (kind === "undo") return "undone";
  if (kind === "sleep" || kind === "signal" || outcome === "started") return "waiting";
  return kind === "value" || kind === "fork" || kind === "refusal" ? "noted" : "done";
}

/** Returns the step's name for display. */
export function stepLabel(record: Pick<StepRecord, "key" | "kind">): string {
  const { key, kind } = record;
  const original = originalKey(key);
  if (original !== undefined) return `(${stepLabel({ ...record, key: original })})`;
  const step = stepOf(key);
  if (kind === "undo") return `↶ ${step.replace(/^~undo\//, "")}`;
  if (kind === "failure") return "✗";
  if (kind === "fork") return `⑂ ${originIn(key)}`;
  return stepName(step);
}

function errorOf(record: StepRecord): string {
  // The record of a failed attempt also holds the pause after it, that of a discarded signal the signal's id.
  const value = shownFailure(record.value) as { readonly error?: unknown } | undefined;
  const own = shownError(record.value);
  const { name, message, code, where } =
    own.message === undefined ? ((value?.error ?? {}) as Partial<ErrorInfo>) : own;
  const place = where === undefined ? "" : ` (${where})`;
  return `${code ?? name ?? "Error"}: ${message ?? ""}${place}`;
}

function isTimedOut(record: StepRecord): boolean {
  const { value } = shownValue(record.value) as {
    readonly value?: { readonly timedOut?: boolean };
  };
  return value?.timedOut === true;
}

function durationOf(record: StepRecord): Millis {
  const duration = shownValue(record.value);
  return typeof duration === "number" ? duration : 0;
}

function isStarted({ outcome }: StepRecord): boolean {
  return outcome === "started";
}

function stepOf(key: string): string {
  return key.replace(/@\d+(?: started)?$/, "");
}

function since({ startedAt }: RunDetails, at: Date): Millis {
  return Math.max(0, at.getTime() - startedAt.getTime());
}
