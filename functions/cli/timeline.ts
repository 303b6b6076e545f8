import type { RunDetails, Signal, StepRecord } from "../../core/journal/journal.ts";
import type { Millis } from "../../core/lock/time.ts";
import { decode, decodeError } from "../../core/steps/codec.ts";

/** How a line of the picture is to be understood. */
export type Tone = "done" | "retried" | "failed" | "undone" | "waiting" | "noted";

/** One thing that a run has done or met with. Times are milliseconds from its start. */
export interface Line {
  readonly at: Millis;

  /** From when it waited for its locks, and from when it worked. */
  readonly waitedFrom: Millis;
  readonly from: Millis;
  readonly step: string;
  readonly what: string;
  readonly tone: Tone;
  readonly took: Millis | undefined;
  readonly waited: Millis | undefined;
  readonly fence: string | undefined;
  readonly error: string | undefined;

  /** It is the first since another holder has taken the run. */
  readonly isTakenUp: boolean;
}

/** What a run has done, a line for each, in the order in which it was written down. */
export function timelineOf(run: RunDetails): readonly Line[] {
  const written = new Set(run.records.map(({ key }) => key));
  const begun = new Map(run.records.filter(isBegun).map((one) => [stepOf(one.key), one]));
  // Where something has ended, or an attempt at it, that it was begun is a part of that.
  const isOver = ({ key }: StepRecord) =>
    written.has(stepOf(key)) || written.has(key.replace(/ started$/, ""));
  const records = run.records.filter((one) => !isBegun(one) || !isOver(one));
  let epoch = records[0]?.epoch;
  const lines = records.map((record) => {
    const isTakenUp = record.epoch !== epoch;
    epoch = record.epoch;
    return { ...lineOf(run, record, begun.get(record.key)), isTakenUp };
  });
  const came = run.signals.map((signal) => lineOfSignal(run, signal));
  return [...lines, ...came].sort((a, b) => a.at - b.at);
}

function lineOf(
  run: RunDetails,
  record: StepRecord,
  begun: StepRecord | undefined,
): Omit<Line, "isTakenUp"> {
  const { took, waited } = record;
  const written = since(run, record.at);
  const isPause = record.kind === "sleep" || record.kind === "signal";
  const isPending = isPause && isBegun(record);
  const at = isPending ? pendingUntil(run, record) : written;
  const start = begun && isPause ? since(run, begun.at) : written;
  const from = Math.max(0, start - (took ?? 0));
  const isError = record.outcome === "failed" || record.outcome === "retry";
  return {
    at,
    from: isPending ? written : from,
    waitedFrom: isPending ? written : Math.max(0, from - (waited ?? 0)),
    step: nameOf(record),
    what: whatOf(record),
    tone: toneOf(record),
    took: isPause && begun ? at - from : took,
    waited,
    fence: record.fence,
    error: isError ? errorOf(record) : undefined,
  };
}

/** A pause is shown as far as it has gone. */
function pendingUntil(run: RunDetails, record: StepRecord): Millis {
  const written = since(run, record.at);
  return Math.max(written, Math.min(written + spanOf(record), since(run, run.now)));
}

function lineOfSignal(run: RunDetails, { name, at }: Signal): Line {
  const when = since(run, at);
  return {
    ...{ at: when, from: when, waitedFrom: when },
    step: `◆ ${name}`,
    what: "came",
    tone: "noted",
    ...{ took: undefined, waited: undefined, fence: undefined, error: undefined },
    isTakenUp: false,
  };
}

type What = (record: StepRecord) => string;

const done: What = ({ outcome, attempt }) => {
  const what = outcome === "started" ? "begun" : outcome;
  return attempt > 1 || outcome === "retry" ? `${what} #${attempt}` : what;
};

/** What is said of a record, by its kind. */
const WHAT: Readonly<Record<StepRecord["kind"], What>> = {
  step: done,
  tx: done,
  child: (record) => (record.outcome === "ok" ? "child ok" : "child failed"),
  value: () => "noted",
  sleep: (record) => (isBegun(record) ? "asleep" : "slept"),
  signal(record) {
    if (isBegun(record)) return "waits";
    if (record.outcome === "failed") return "refused";
    return isTimedOut(record) ? "timed out" : "received";
  },
  undo: (record) => (record.outcome === "ok" ? "undone" : done(record)),
  failure: () => "run failed",
};

export function whatOf(record: StepRecord): string {
  return WHAT[record.kind](record);
}

function toneOf(record: StepRecord): Tone {
  const { kind, outcome } = record;
  if (kind === "failure" || outcome === "failed") return "failed";
  if (outcome === "retry") return "retried";
  if (kind === "undo") return "undone";
  if (kind === "sleep" || kind === "signal" || outcome === "started") return "waiting";
  return kind === "value" ? "noted" : "done";
}

/** The step's name, for humans. */
export function nameOf({ key, kind }: StepRecord): string {
  const step = stepOf(key);
  if (kind === "undo") return `↶ ${step.replace(/^~undo\//, "")}`;
  if (kind === "failure") return "✗";
  return step.replace(/^~(signal\/)?/, "");
}

function errorOf(record: StepRecord): string {
  // A failed attempt is kept together with the pause after it, and a refused payload with its signal.
  const value = decode<{ error?: unknown; value?: unknown } | undefined>(record.value);
  const { name, message, code } = decodeError(record.value);
  if (message !== undefined) return `${code ?? name}: ${message}`;
  const inner = (value?.error ?? value?.value) as Partial<Error & { code: string }> | undefined;
  return `${inner?.code ?? inner?.name ?? "Error"}: ${inner?.message ?? ""}`;
}

function isTimedOut(record: StepRecord): boolean {
  const { value } = decode<{ value?: { timedOut?: boolean } }>(record.value);
  return value?.timedOut === true;
}

function spanOf(record: StepRecord): Millis {
  const span = decode<unknown>(record.value);
  return typeof span === "number" ? span : 0;
}

function isBegun({ outcome }: StepRecord): boolean {
  return outcome === "started";
}

function stepOf(key: string): string {
  return key.replace(/@\d+(?: started)?$/, "");
}

function since({ startedAt }: RunDetails, at: Date): Millis {
  return Math.max(0, at.getTime() - startedAt.getTime());
}
