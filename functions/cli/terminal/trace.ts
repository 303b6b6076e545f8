import type { RunDetails } from "../../../core/journal/journal.ts";
import { type TimelineEntry, timelineOf } from "./timeline.ts";

/** An event of the Trace Event Format: times are in microseconds, `X` is a span, `M` names a lane. */
interface TraceEvent {
  readonly name: string;
  readonly ph: "X" | "M";
  readonly pid: 1;
  readonly tid: number;
  readonly cat?: string;
  readonly ts?: number;
  readonly dur?: number;
  readonly args: Readonly<Record<string, unknown>>;
}

/** Returns a run in the Trace Event Format, which ui.perfetto.dev and chrome://tracing show: a lane for each step. */
export function traceOf(run: RunDetails): { readonly traceEvents: readonly TraceEvent[] } {
  const lanes = Map.groupBy(timelineOf(run), ({ step }) => step);
  const start = run.startedAt.getTime();
  const spans = [...lanes.values()].flatMap((entries, i) =>
    entries.flatMap((entry) => spansOf(entry, start, i + 1)),
  );
  const names = [...lanes.keys()].map((name, i) => nameOf("thread_name", name, i + 1));
  return {
    traceEvents: [nameOf("process_name", `${run.workflow} ${run.runId}`, 0), ...names, ...spans],
  };
}

function nameOf(name: "process_name" | "thread_name", shown: string, tid: number): TraceEvent {
  return { name, ph: "M", pid: 1, tid, args: { name: shown } };
}

/** The wait for locks, if there was one, and the work. */
function spansOf(entry: TimelineEntry, start: number, tid: number): readonly TraceEvent[] {
  const { waitedFrom, from, at, step, label, style, fence, error } = entry;
  const span = (name: string, cat: string, begin: number, end: number, args = {}): TraceEvent => ({
    ...{ name, cat, ph: "X", pid: 1, tid, args },
    ts: Math.round((start + begin) * 1_000),
    dur: Math.round(Math.max(0, end - begin) * 1_000),
  });
  const work = span(`${step}: ${label}`, style, from, at, { fence, error });
  return waitedFrom < from ? [span(`${step}: waits`, "lock", waitedFrom, from), work] : [work];
}
