import { incidentOf } from "./incident.ts";
import type { Observations } from "./observations.ts";
import type { Interval } from "./trace.ts";

/** An event of the Trace Event Format. `ts` and `dur` are in microseconds. */
interface ChromeEvent {
  readonly name: string;

  /** `M`: a name, `X`: a span, `i`: a moment, `C`: a counter, `s` and `f`: both ends of an arrow. */
  readonly ph: "M" | "X" | "i" | "C" | "s" | "f";
  readonly pid: number;
  readonly tid: number;
  readonly ts: number;
  readonly dur?: number;
  readonly cat?: string;
  readonly id?: string;

  /** The arrow ends at the span around it. */
  readonly bp?: "e";

  /** The moment belongs to its thread. */
  readonly s?: "t";
  readonly args?: Readonly<Record<string, string | number | undefined>>;
}

/** The thread of the lock store. The threads of the workers and that of the stock follow. */
const STORE = 1;

/** Renders replays in the Trace Event Format, for ui.perfetto.dev: each strategy is a process, each lane a thread. */
export function renderTrace(observed: readonly Observations[]): string {
  const traceEvents = observed.flatMap((one, i) => eventsOf(one, i + 1));
  return JSON.stringify({ displayTimeUnit: "ms", traceEvents });
}

function eventsOf(observed: Observations, pid: number): readonly ChromeEvent[] {
  const { report, workers, beliefs, grants, delays, messages, curve, frames } =
    incidentOf(observed);
  const threadOf = (worker: number) => STORE + 1 + worker;
  const stock = threadOf(workers);
  const nameOf = (
    type: "process_name" | "thread_name",
    tid: number,
    name: string,
  ): ChromeEvent => ({
    ...{ name: type, ph: "M", pid, tid, ts: 0 },
    args: { name },
  });
  const span = (
    name: string,
    cat: string,
    tid: number,
    { from, to }: Interval,
    args: ChromeEvent["args"] = {},
  ): ChromeEvent => ({
    ...{ name, cat, ph: "X", pid, tid, ts: micros(from) },
    // The difference of rounded times: a span inside another one stays inside.
    ...{ dur: micros(to) - micros(from), args },
  });
  return [
    nameOf("process_name", 0, `${report.name}: ${report.why}`),
    nameOf("thread_name", STORE, "lock store"),
    ...Array.from({ length: workers }, (_, i) =>
      nameOf("thread_name", threadOf(i), `process ${i + 1}`),
    ),
    nameOf("thread_name", stock, "stock"),
    ...grants.map((grant) =>
      span(`process ${grant.worker + 1}`, "grant", STORE, grant, { token: grant.token }),
    ),
    ...beliefs.map((belief) =>
      span(belief.overlaps ? "second holder" : "holder", "belief", threadOf(belief.worker), belief),
    ),
    ...delays.map((delay) => span(delay.type, "delay", threadOf(delay.worker), delay)),
    ...messages.flatMap(({ type, worker, token, from, to }, i): readonly ChromeEvent[] => {
      const arrow = { name: type, cat: "message", id: `${pid}-${i}`, pid };
      const at = micros(to);
      const args = { process: worker + 1, token };
      return [
        span(type, "request", threadOf(worker), { from, to }, args),
        { ...arrow, ph: "s", tid: threadOf(worker), ts: micros(from) },
        // An arrow ends at a span only, and a span of no length is not shown.
        { name: type, cat: "answer", ph: "X", pid, tid: stock, ts: at, dur: 1, args },
        { ...arrow, ph: "f", bp: "e", tid: stock, ts: at },
      ];
    }),
    ...curve.map(
      ({ at, recorded, left }): ChromeEvent => ({
        ...{ name: "stock", ph: "C", pid, tid: stock, ts: micros(at) },
        args: { recorded, left },
      }),
    ),
    ...frames.map(
      ({ at, worker, text }): ChromeEvent => ({
        ...{ name: text, cat: "moment", ph: "i", s: "t", pid, tid: threadOf(worker) },
        ts: micros(at),
      }),
    ),
  ];
}

function micros(millis: number): number {
  return Math.round(millis * 1_000);
}
