import { writeFileSync } from "node:fs";
import { note } from "../../functions/cli/terminal/output.ts";
import {
  type ChromeTraceEvent,
  nameEvent,
  spanEvent,
} from "../../functions/telemetry/trace-events.ts";
import type { HistoryEvent } from "./history.ts";

/** Who saw, or caused, what has no name. */
const OTHERS = "faults";

/**
 * Renders a history in the Trace Event Format, as `lockstep oversell --trace` does, for ui.perfetto.dev: each lock, stock and run
 * is a process, each of its clients a thread. `violations` are moments at the end.
 */
export function renderHistory(
  events: readonly HistoryEvent[],
  violations: readonly string[],
): string {
  const inOrder = events.toSorted((a, b) => a.time - b.time);
  const start = inOrder[0]?.time ?? 0;
  const end = inOrder.at(-1)?.time ?? start;
  const processes = Map.groupBy(inOrder, ({ name = OTHERS }) => name);
  const traceEvents = [...processes].flatMap(([name, ofName], pid) => {
    const clients = Map.groupBy(ofName, ({ client }) => client);
    return [
      nameEvent("process_name", { pid, tid: 0 }, name),
      ...[...clients].flatMap(([client, ofClient], tid) => [
        nameEvent("thread_name", { pid, tid }, client),
        ...spansOf(ofClient, { pid, tid, start, end }),
      ]),
    ];
  });
  const moments = violations.map(
    (name): ChromeTraceEvent => ({
      ...{ name, cat: "violation", ph: "i", s: "t", pid: processes.size, tid: 0, args: {} },
      ts: end - start,
    }),
  );
  const title = nameEvent("process_name", { pid: processes.size, tid: 0 }, "violations");
  return JSON.stringify({
    displayTimeUnit: "ms",
    traceEvents: [...traceEvents, title, ...moments],
  });
}

/** Writes the history of a failed campaign to a file, and tells where it is. */
export function writeFailure(store: string, seed: number, trace: string): void {
  const path = `campaign-${store}-${seed}.json`;
  writeFileSync(path, trace);
  note(`${store}: ui.perfetto.dev shows the history in ${path}`);
}

interface Lane {
  readonly pid: number;
  readonly tid: number;

  /** The first and the last time of the history. */
  readonly start: number;
  readonly end: number;
}

/** Returns a span for each call of a client. What has no beginning is a short one, what has no end lasts to the end. */
function spansOf(
  events: readonly HistoryEvent[],
  { pid, tid, start, end }: Lane,
): readonly ChromeTraceEvent[] {
  const open = new Map<string, HistoryEvent>();
  const span = (from: number, event: HistoryEvent, to = event.time) => {
    const { time: _, client: __, name: ___, operation, type, ...args } = event;
    const millis = (time: number) => (time - start) / 1_000;
    return spanEvent({
      ...{ name: `${operation} ${type}`, cat: operation, pid, tid, args },
      ...{ from: millis(from), to: millis(to) },
    });
  };
  const ended = events.flatMap((event) => {
    const invoked = open.get(event.operation);
    if (event.type === "invoke") open.set(event.operation, event);
    else open.delete(event.operation);
    return event.type === "invoke" ? [] : [span(invoked?.time ?? event.time, event)];
  });
  return [...ended, ...[...open.values()].map((event) => span(event.time, event, end))];
}
