import type { RunDetails } from "../../../core/journal/queries.ts";
import type { Compensation } from "../../../core/journal/runs.ts";
import { quote } from "../../../core/lock/errors.ts";
import type { Millis } from "../../../core/lock/time.ts";
import type { ErrorInfo } from "../../../core/steps/errors.ts";
import { stepName } from "../../../core/steps/step-keys.ts";
import { escapeControls } from "../../display/escape-controls.ts";
import { formatDuration } from "../../display/format-duration.ts";
import { formatJson } from "../../display/format-json.ts";
import { timelineOf } from "../../display/timeline.ts";
import { shownError, shownValue } from "../../json/shown-value.ts";
import { colour, drawTimeline, truncate } from "./draw-timeline.ts";

/** Draws a run as text with lines of at most `width` columns. `holders` has the holders of the locks that it waits for. */
export function drawRun(run: RunDetails, width: number, holders = NOBODY): string {
  const entries = timelineOf(run);
  const until = run.ending?.at ?? (run.status === "running" ? run.now : run.changedAt);
  const end = Math.max(since(run, until), ...entries.map(({ at }) => at));
  const cut = (text: string, longest = width) => truncate(escapeControls(text), longest);
  // Why a run does not go on is not cut to the width: the cause stands at the end of the message.
  const longest = run.status === "completed" ? width : LONGEST_REASON;
  const legend = entries.some(({ isResumed }) => isResumed)
    ? [colour("faint", "↻ resumed: the run was parked, or its process was lost")]
    : [];
  return [
    colour("strong", cut(`${run.runId}  ${run.workflow} v${run.version}  ${statusOf(run, end)}`)),
    ...(run.part > 1 ? [cut(`part ${run.part}: ctx.continueAsNew ended the one before`)] : []),
    cut(`started ${run.startedAt.toISOString()}, last executed by ${run.owner || "nobody"}`),
    cut(`input  ${formatJson(shownValue(run.input))}`),
    ...familyOf(run).map((line) => cut(line)),
    "",
    ...(entries.length > 0 ? [drawTimeline(entries, end, width), ...legend] : ["no steps yet"]),
    ...(run.next === undefined
      ? []
      : [colour("faint", cut(`more records: --after '${run.next}'`))]),
    "",
    ...outcomeLines(run, holders).map((line) => cut(line, longest)),
  ].join("\n");
}

const LONGEST_REASON = 1_000;

type Holders = ReadonlyMap<string, string>;

const NOBODY: Holders = new Map();

function familyOf({ origin, forks }: RunDetails): readonly string[] {
  return [
    ...(origin ? [`forked from ${origin.runId} at ${stepName(origin.step)}`] : []),
    ...(forks.length > 0 ? [`forks  ${forks.join(", ")}`] : []),
  ];
}

function statusOf({ status, ending }: RunDetails, end: Millis): string {
  return ending ? `${status} in ${formatDuration(end)}` : status;
}

function outcomeLines(run: RunDetails, holders: Holders): readonly string[] {
  const { status, ending, cancelled, crashes } = run;
  const notes = [
    ...(cancelled && !ending ? ["cancelled: the run is stopped and undone"] : []),
    ...(crashes > 0 ? [`consecutive crashes: ${crashes}`] : []),
  ];
  if (status === "blocked") return [describeBlocked(run), ...notes];
  if (status === "parked") return [describeParked(run, holders), ...notes];
  if (!ending) return [describeRunning(run), ...waitsOf(run, holders), ...notes];
  if (status === "completed")
    return [`output  ${formatJson(shownValue(ending.value)) ?? "nothing"}`];
  const failure = shownError(ending.value);
  const { name, code, message } = failure;
  const undone = ending.compensated && UNDONE[ending.compensated];
  const lines = [`${status}  ${code ?? name}: ${message}`, ...placeOf(run, failure)];
  return [...lines, ...(undone ? [undone] : []), ...notes];
}

/** Returns the step and attempt, or else the line of the workflow's code, that failed the run. */
function placeOf({ records }: RunDetails, { step, where }: ErrorInfo): readonly string[] {
  if (step === undefined) return where === undefined ? [] : [`at ${where}`];
  const last = records.findLast(({ key, outcome }) => key === step && outcome === "failed");
  return [`in step ${quote(step)}, attempt ${last?.attempt ?? 1}`];
}

const UNDONE: Readonly<Record<Compensation, string>> = {
  yes: "all undos have run",
  no: "NOT all undone: an undo failed",
  unclear: "UNCLEAR whether all steps are undone: one without an undo may have had its effect",
};

const REASONS: Readonly<Record<NonNullable<RunDetails["reason"]>, string>> = {
  sleep: "sleeps",
  signal: "waits for a signal",
  deadline: "stopped at a deadline",
  "lock-busy": "waits for a lock",
  debounce: "waits for further starts with its key",
  "retry-delay": "waits for the next attempt of a step",
  child: "waits for another run",
};

function describeWait(lock: string, holders: Holders): string {
  const holder = holders.get(lock);
  return `waits for lock ${quote(lock)}${holder ? `, held by ${holder}` : ""}`;
}

/** Returns a line for each step in progress that waits for a lock. */
function waitsOf(run: RunDetails, holders: Holders): readonly string[] {
  return timelineOf(run).flatMap(({ step, waitsFor, waited = 0 }) =>
    waitsFor === undefined
      ? []
      : [`${step} ${describeWait(waitsFor, holders)}, for ${formatDuration(waited)}`],
  );
}

function describeParked({ reason, waitsFor, dueAt, now }: RunDetails, holders: Holders): string {
  const lock = waitsFor && describeWait(waitsFor, holders);
  const why = lock ?? (reason ? REASONS[reason] : "was started");
  if (dueAt === undefined) return `parked  ${why}`;
  const wakeIn = dueAt.getTime() - now.getTime();
  if (wakeIn <= 0) return `parked  ${why}, and is due`;
  return `parked  ${why}, wakes in ${formatDuration(wakeIn)}, at ${dueAt.toISOString()}`;
}

function describeBlocked({ error, dueAt, now }: RunDetails): string {
  const { name, code, message } = shownError(error);
  const left = formatDuration(Math.max(0, (dueAt?.getTime() ?? 0) - now.getTime()));
  return `blocked  ${code ?? name}: ${message}; is tried again in ${left}`;
}

function describeRunning({ owner, dueAt, now }: RunDetails): string {
  const left = (dueAt?.getTime() ?? 0) - now.getTime();
  if (left > 0) {
    return `running  on ${owner}, lease ends in ${formatDuration(left)} unless renewed`;
  }
  return `running  on ${owner}, lease expired: another process may take the run`;
}

function since({ startedAt }: RunDetails, at: Date): Millis {
  return Math.max(0, at.getTime() - startedAt.getTime());
}
