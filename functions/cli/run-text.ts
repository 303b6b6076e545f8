import type { RunDetails } from "../../core/journal/journal.ts";
import type { Millis } from "../../core/lock/time.ts";
import { decode, decodeError } from "../../core/steps/codec.ts";
import { toJson } from "./json.ts";
import { spanText } from "./spans.ts";
import { timelineOf } from "./timeline.ts";
import { drawTimeline, paint, shorten, visible } from "./timeline-text.ts";

/** Everything about a run as a picture in text, `width` columns wide. */
export function drawRun(run: RunDetails, width: number): string {
  const lines = timelineOf(run);
  const until = run.ending?.at ?? (run.status === "running" ? run.now : run.changedAt);
  const end = Math.max(since(run, until), ...lines.map(({ at }) => at));
  const cut = (text: string) => shorten(visible(text), width);
  const legend = lines.some(({ isTakenUp }) => isTakenUp)
    ? [paint("faint", "↻ taken up again: it had been parked, or its process was lost")]
    : [];
  return [
    paint("strong", cut(`${run.runId}  ${run.workflow} v${run.version}  ${statusOf(run, end)}`)),
    cut(`begun ${run.startedAt.toISOString()}, last carried by ${run.owner || "nobody"}`),
    cut(`input  ${toJson(decode(run.input))}`),
    "",
    ...(lines.length > 0 ? [drawTimeline(lines, end, width), ...legend] : ["nothing done yet"]),
    "",
    ...outcomeOf(run).map(cut),
  ].join("\n");
}

function statusOf({ status, ending }: RunDetails, end: Millis): string {
  return ending ? `${status} in ${spanText(end)}` : status;
}

function outcomeOf(run: RunDetails): readonly string[] {
  const { status, ending, cancelled, crashes } = run;
  const notes = [
    ...(cancelled && !ending ? ["it was asked to stop, and will at its next step"] : []),
    ...(crashes > 0 ? [`processes lost over it in a row: ${crashes}`] : []),
  ];
  if (!ending) return [status === "parked" ? parked(run) : running(run), ...notes];
  if (status === "completed") return [`output  ${toJson(decode(ending.value)) ?? "nothing"}`];
  const { name, code, message } = decodeError(ending.value);
  const undone = ending.compensated ? "all undone" : "NOT all of it is undone";
  return [`${status}  ${code ?? name}: ${message}`, undone, ...notes];
}

const REASONS: Readonly<Record<NonNullable<RunDetails["reason"]>, string>> = {
  sleep: "sleeps",
  signal: "waits for a signal",
  deadline: "was let go of",
  "lock-busy": "waits for a lock",
  "retry-delay": "waits for the next attempt at a step",
  child: "waits for another run",
};

function parked({ reason, dueAt, now }: RunDetails): string {
  const why = reason ? REASONS[reason] : "was begun";
  if (dueAt === undefined) return `parked  ${why}`;
  const wakeIn = dueAt.getTime() - now.getTime();
  if (wakeIn <= 0) return `parked  ${why}, and is due`;
  return `parked  ${why}, and wakes up in ${spanText(wakeIn)}, at ${dueAt.toISOString()}`;
}

function running({ owner, dueAt, now }: RunDetails): string {
  const left = (dueAt?.getTime() ?? 0) - now.getTime();
  if (left > 0)
    return `running  with ${owner}, whose lease ends in ${spanText(left)} unless renewed`;
  return `running  with ${owner}, which was not heard from in time: others may take it`;
}

function since({ startedAt }: RunDetails, at: Date): Millis {
  return Math.max(0, at.getTime() - startedAt.getTime());
}
