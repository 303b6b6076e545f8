import type { Millis } from "../../core/lock/time.ts";

/** An event of the Trace Event Format, which ui.perfetto.dev shows. `ts` and `dur` are in microseconds. */
export interface ChromeTraceEvent {
  readonly name: string;

  /** `M`: a name, `X`: a span, `i`: a moment, `C`: a counter, `s` and `f`: both ends of an arrow. */
  readonly ph: "M" | "X" | "i" | "C" | "s" | "f";
  readonly pid: number;

  /** The lane: a thread of the process. */
  readonly tid: number;
  readonly ts: number;
  readonly dur?: number;
  readonly cat?: string;
  readonly id?: string;

  /** The arrow ends at the span around it. */
  readonly bp?: "e";

  /** The moment belongs to its thread. */
  readonly s?: "t";
  readonly args: Readonly<Record<string, unknown>>;
}

type Lane = Pick<ChromeTraceEvent, "pid" | "tid">;

/** Names a process, or one of its lanes. */
export function nameEvent(
  type: "process_name" | "thread_name",
  { pid, tid }: Lane,
  name: string,
): ChromeTraceEvent {
  return { name: type, ph: "M", pid, tid, ts: 0, args: { name } };
}

interface Span extends Lane {
  readonly name: string;
  readonly cat: string;
  readonly from: Millis;
  readonly to: Millis;
  readonly args?: ChromeTraceEvent["args"];
}

/** Returns a span between two times. */
export function spanEvent({ name, cat, pid, tid, from, to, args = {} }: Span): ChromeTraceEvent {
  const ts = micros(from);
  // The difference of rounded times: a span inside another one stays inside.
  const dur = Math.max(0, micros(to) - ts);
  return { name, cat, ph: "X", pid, tid, ts, dur, args };
}

/** Returns whole microseconds. */
export function micros(millis: Millis): number {
  return Math.round(millis * 1_000);
}
