import type { RunDetails } from "../../../core/journal/queries.ts";
import { type TimelineEntry, timelineOf } from "../../display/timeline.ts";
import { type ChromeTraceEvent, nameEvent, spanEvent } from "../../telemetry/trace-events.ts";

/** The number of the only process in a trace. */
const PID = 1;

/** Returns a run in the Trace Event Format, which ui.perfetto.dev and chrome://tracing show: a lane for each step. */
export function traceOf(run: RunDetails): { readonly traceEvents: readonly ChromeTraceEvent[] } {
  const lanes = Map.groupBy(timelineOf(run), ({ step }) => step);
  const start = run.startedAt.getTime();
  const spans = [...lanes.values()].flatMap((entries, i) =>
    entries.flatMap((entry) => spansOf(entry, start, i + 1)),
  );
  const names = [...lanes.keys()].map((name, i) =>
    nameEvent("thread_name", { pid: PID, tid: i + 1 }, name),
  );
  const title = nameEvent("process_name", { pid: PID, tid: 0 }, `${run.workflow} ${run.runId}`);
  return { traceEvents: [title, ...names, ...spans] };
}

/** The wait for locks, if there was one, and the work. */
function spansOf(entry: TimelineEntry, start: number, tid: number): readonly ChromeTraceEvent[] {
  const { waitedFrom, from, at, step, label, style, fence, error } = entry;
  const lane = { pid: PID, tid };
  const times = { from: start + from, to: start + at };
  const work = { name: `${step}: ${label}`, cat: style, ...times, args: { fence, error } };
  const wait = { name: `${step}: waits`, cat: "lock", from: start + waitedFrom, to: start + from };
  const parts = waitedFrom < from ? [wait, work] : [work];
  return parts.map((part) => spanEvent({ ...lane, ...part }));
}
