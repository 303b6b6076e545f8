import { cp, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { temporaryFolder } from "../../infra/servers/reap.ts";
import { explore, toSearch } from "./spin.ts";

/** One event of a history. The events of one client follow each other: `invoke`, then the end of the call. */
export interface CallEvent {
  /** By one clock of all clients. Events of the same time are in order. */
  readonly time: number;
  readonly client: string;

  /** `unknown`: the call may have had its effect, or have it later. */
  readonly type: "invoke" | "ok" | "fail" | "unknown";

  /** `hold`: the client finds its lock held. Operations that the model does not have are passed over. */
  readonly operation: string;

  /** The lock, and the resource that it guards. */
  readonly name?: string;

  /** The fence in the form of `Fence.toString()`, which sorts like fences. */
  readonly token?: string;

  /** The value that was read or written: each write adds one to the value that its client has read. */
  readonly value?: number;

  /** The code of an error, or the answer in place of the expected one. */
  readonly code?: string;
}

/** The events of one name, in order. */
export type NameHistory = readonly CallEvent[];

/** What no path of the model allows. */
export interface Refusal {
  readonly history: NameHistory;
  readonly event: CallEvent;
}

/** The operations of the model. A call that fails with the code was refused by the resource or the lock. */
const OPERATIONS: Readonly<Record<string, { readonly step: string; readonly refusal?: string }>> = {
  acquire: { step: "ACQUIRE" },
  claim: { step: "CLAIM", refusal: "FENCED_OUT" },
  read: { step: "READ" },
  write: { step: "WRITE", refusal: "FENCED_OUT" },
  release: { step: "RELEASE", refusal: "was-lost" },
};

/** The most events of a history: the model counts in bytes. Of a longer history, the beginning is replayed. */
const MOST_EVENTS = 200;

/** Returns the histories of the locks and registers: each one has the events of one name. */
export function byName(events: readonly CallEvent[]): readonly NameHistory[] {
  const named = events.filter(({ name }) => name !== undefined);
  return [...Map.groupBy(named, ({ name }) => name).values()];
}

/** Looks for a path of the model "fence" for each history. */
export async function replayOnFence(
  histories: readonly NameHistory[],
): Promise<Refusal | undefined> {
  const lines = histories.flatMap(toLines);
  const calls = 1 + Math.max(0, ...lines.map(({ call }) => call));
  await using folder = await temporaryFolder("trace");
  const { path } = folder;
  await cp(new URL("fence.pml", import.meta.url), join(path, "fence.pml"));
  await cp(new URL("traces/fence.pml", import.meta.url), join(path, "model.pml"));
  await cp(new URL("traces/steps.h", import.meta.url), join(path, "steps.h"));
  await writeFile(join(path, "events.h"), tableOf(lines));
  const symbols = [`CALLS=${calls}`, `EVENTS=${lines.length}`];
  // Calls without an answer end nowhere.
  const output = await explore(path, symbols, ["-E"]);
  const { violation } = toSearch(output);
  if (violation === "assertion violated 0") return undefined;
  if (violation) throw new Error(output);
  const furthest = lines[Number([...output.matchAll(/^event (\d+)$/gm)].at(-1)?.[1])];
  if (!furthest?.event) throw new Error(output);
  return { history: furthest.history, event: furthest.event };
}

/** An event as the model reads it. */
interface Line {
  readonly step: string;
  readonly history: NameHistory;

  /** Undefined for the line before the first event. */
  readonly event?: CallEvent;

  /** Numbers of calls are used again after their end. */
  readonly call: number;
  readonly token: number;
  readonly value: number;
}

function tableOf(lines: readonly Line[]): string {
  const rows = lines.map(
    ({ step, call, token, value }) => `{${step}, ${call}, ${token}, ${value}},`,
  );
  return `static const struct { unsigned char step, call, token, value; } events[] = {
${rows.join("\n")}
};
static int furthest = -1;
`;
}

function toLines(all: NameHistory): readonly Line[] {
  const history = all.toSorted((a, b) => a.time - b.time).slice(0, MOST_EVENTS);
  const calls = callsOf(history);
  const tokens = tokensOf(history);
  const start = { history, call: 0, token: 0, value: 0 };
  const lines: Line[] = [{ ...start, step: "RESET" }];
  const open = new Set<number>();
  for (const event of history) {
    const { type, operation, token = "" } = event;
    const add = (line: Pick<Line, "step"> & Partial<Line>) =>
      lines.push({ ...start, event, ...line });
    if (operation === "hold" && type === "ok") add({ step: "HOLD", token: tokens.get(token) ?? 0 });
    const call = calls.get(event);
    if (!call) continue;
    if (type === "invoke") {
      while (open.has(call.number)) call.number += 1;
      open.add(call.number);
      const { step, number, seen } = call;
      add({ step, call: number, token: tokens.get(call.token) ?? 0, value: seen });
    } else if (type !== "unknown") {
      add({ step: type === "ok" ? "SUCCEED" : "FAIL", call: call.number });
      open.delete(call.number);
    }
  }
  return lines;
}

interface Call {
  readonly step: string;
  readonly token: string;

  /** The value that was read, before a write as well. */
  readonly seen: number;
  number: number;
}

/** Returns the calls by their two events. */
function callsOf(history: NameHistory): ReadonlyMap<CallEvent, Call> {
  const calls = new Map<CallEvent, Call>();
  const invoked = new Map<string, CallEvent>();
  const add = (invoke: CallEvent, end?: CallEvent) => {
    const step = OPERATIONS[invoke.operation]?.step;
    if (!step || !mayHaveEffect(invoke, end)) return;
    const { token = "", value = 0 } = { ...invoke, ...end };
    const call = { step, token, seen: step === "WRITE" ? value - 1 : value, number: 0 };
    calls.set(invoke, call);
    if (end) calls.set(end, call);
  };
  for (const event of history) {
    const key = `${event.client} ${event.operation}`;
    const invoke = invoked.get(key);
    invoked.delete(key);
    if (invoke) add(invoke, event.type === "invoke" ? undefined : event);
    if (event.type === "invoke") invoked.set(key, event);
  }
  for (const invoke of invoked.values()) add(invoke);
  return calls;
}

/** A claim of a lock that nobody was told about leaves a gap between tokens alone, and a read nothing. */
function mayHaveEffect({ operation }: CallEvent, end: CallEvent | undefined): boolean {
  if (end?.type === "ok") return true;
  const refusal = OPERATIONS[operation]?.refusal;
  if (end?.type === "fail") return refusal !== undefined && end.code === refusal;
  return operation !== "acquire" && operation !== "read";
}

/** Numbers the tokens in their order, from 1. */
function tokensOf(history: NameHistory): ReadonlyMap<string, number> {
  const tokens = history.flatMap(({ token }) => (token === undefined ? [] : [token]));
  return new Map([...new Set(tokens)].sort().map((token, i) => [token, i + 1]));
}
