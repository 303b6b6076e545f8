import { type ChromeTraceEvent, micros, nameEvent, spanEvent } from "../telemetry/trace-events.ts";
import { incidentOf, isToLockStore } from "./incident.ts";
import type { Observations } from "./observations.ts";
import type { Interval } from "./trace.ts";

/** The thread of the lock store. The threads of the workers and that of the stock follow. */
const STORE = 1;

/** Renders replays in the Trace Event Format, for ui.perfetto.dev: each strategy is a process, each lane a thread. */
export function renderTrace(observations: readonly Observations[]): string {
  const traceEvents = observations.flatMap((one, i) => eventsOf(one, i + 1));
  return JSON.stringify({ displayTimeUnit: "ms", traceEvents });
}

function eventsOf(observations: Observations, pid: number): readonly ChromeTraceEvent[] {
  const { report, workers, beliefs, grants, delays, messages, curve, frames } =
    incidentOf(observations);
  const threadOf = (worker: number) => STORE + 1 + worker;
  const stock = threadOf(workers);
  const span = (
    name: string,
    cat: string,
    tid: number,
    { from, to }: Interval,
    args: ChromeTraceEvent["args"] = {},
  ) => spanEvent({ name, cat, pid, tid, from, to, args });
  return [
    nameEvent("process_name", { pid, tid: 0 }, `${report.name}: ${report.why}`),
    nameEvent("thread_name", { pid, tid: STORE }, "lock store"),
    ...Array.from({ length: workers }, (_, i) =>
      nameEvent("thread_name", { pid, tid: threadOf(i) }, `process ${i + 1}`),
    ),
    nameEvent("thread_name", { pid, tid: stock }, "stock"),
    ...grants.map((grant) =>
      span(`process ${grant.worker + 1}`, "grant", STORE, grant, { token: grant.token }),
    ),
    ...beliefs.map((belief) =>
      span(belief.overlaps ? "second holder" : "holder", "belief", threadOf(belief.worker), belief),
    ),
    ...delays.map((delay) => span(delay.type, "delay", threadOf(delay.worker), delay)),
    ...messages.flatMap((message, i): readonly ChromeTraceEvent[] => {
      const { type, worker, token, from, to } = message;
      const receiver = isToLockStore(message) ? STORE : stock;
      const arrow = { name: type, cat: "message", id: `${pid}-${i}`, pid, args: {} };
      const at = micros(to);
      const args = { process: worker + 1, token };
      return [
        span(type, "request", threadOf(worker), { from, to }, args),
        { ...arrow, ph: "s", tid: threadOf(worker), ts: micros(from) },
        // An arrow ends at a span only, and a span of no length is not shown.
        { name: type, cat: "answer", ph: "X", pid, tid: receiver, ts: at, dur: 1, args },
        { ...arrow, ph: "f", bp: "e", tid: receiver, ts: at },
      ];
    }),
    ...curve.map(
      ({ at, recorded, left }): ChromeTraceEvent => ({
        ...{ name: "stock", ph: "C", pid, tid: stock, ts: micros(at) },
        args: { recorded, left },
      }),
    ),
    ...frames.map(
      ({ at, worker, text }): ChromeTraceEvent => ({
        ...{ name: text, cat: "moment", ph: "i", s: "t", pid, tid: threadOf(worker), args: {} },
        ts: micros(at),
      }),
    ),
  ];
}
