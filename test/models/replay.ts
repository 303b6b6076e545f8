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

  /**
   * `hold`: the client finds its lock held. `owner`: the store has given the lock to the acquisition of this token; without a
   * token, to nobody or to one that no client was told of. Operations that no model has are passed over.
   */
  readonly operation: string;

  /** The lock and the resource that it guards, or the run. */
  readonly name?: string;

  /** The fence in the form of `Fence.toString()`, or a run's epoch: texts that sort like what they stand for. */
  readonly token?: string;

  /** The value that was read or written: each write adds one to the value that its client has read. */
  readonly value?: number;

  /** Until when the client that finds its lock held is sure of it, if it does not renew the lock again. */
  readonly until?: number;

  /** The operation id of a change of stock, its units, and the units that it has left. */
  readonly id?: string;
  readonly units?: number;
  readonly remaining?: number;

  /** The operation id of the reservation that a change closes. */
  readonly reservation?: string;

  /** The code of an error, or the answer in place of the expected one. */
  readonly code?: string;
}

/** The events of one name, in order. */
export type NameHistory = readonly CallEvent[];

/** What no path of the model allows. */
export interface Refusal {
  readonly model: TraceModelName;
  readonly history: NameHistory;
  readonly event: CallEvent;
}

/** How many histories and events were replayed, as paths of all models, up to the first event that a model does not allow. */
export interface Replay {
  readonly histories: number;

  /** The events that some model has replayed. */
  readonly events: number;

  /** The models that had some of the events. Results of earlier versions do not have it. */
  readonly models?: Readonly<Record<string, Share>>;
  readonly refusal?: Refusal;
}

/** How many events a model has, and how many of them the bounds of a search did not leave out. */
interface Share {
  readonly replayed: number;
  readonly recorded: number;
}

interface Operation {
  /** The call's name in the model. */
  readonly step: string;

  /**
   * The codes with which the resource, the lock or the journal refuses the call, or the client gives its lock up. Any other
   * failure has no effect.
   */
  readonly refusals?: readonly string[];

  /** Whether a call without an answer may be left out: nobody sees its effect, or the model has it anyway. */
  readonly isPassing?: boolean;

  /** Whether a success proves that calls under lower tokens have no effect any more. */
  readonly supersedes?: boolean;

  /** Whether the model would find nothing in a history without such events. */
  readonly isNeeded?: boolean;
}

type Operations = Readonly<Record<string, Operation>>;

/** The steps of what a client sees or gives up at once, and of what the store has. */
const OBSERVE = "OBSERVE";
const GIVE_UP = "GIVE_UP";
const OWNER = "OWNER";

/** The operation that supplies the stock before all others. Its value is the number of units. */
const SUPPLY = "supply";

/** The units that are left, to a client that was not told. */
const UNKNOWN = -1;

/** The operations that each model has. */
const TRACE_MODELS = {
  fence: {
    hold: { step: OBSERVE },
    // A claim of a lock that nobody was told about leaves a gap between tokens alone.
    acquire: { step: "ACQUIRE", isPassing: true },
    claim: { step: "CLAIM", refusals: ["FENCED_OUT"], supersedes: true },
    read: { step: "READ", isPassing: true },
    write: { step: "WRITE", refusals: ["FENCED_OUT"], supersedes: true },
    release: { step: "RELEASE", refusals: ["was-lost"] },
  },
  validity: {
    // A client whose clock was stepped forward gives its lock up early. A lock that was "taken" was lost at the store.
    hold: { step: OBSERVE, refusals: ["expired"] },
    acquire: { step: "ACQUIRE", isPassing: true, supersedes: true },
    release: { step: "RELEASE", refusals: ["was-lost"] },
  },
  withdrawal: {
    hold: { step: OBSERVE },
    owner: { step: OWNER, isNeeded: true },
    acquire: { step: "ACQUIRE", isPassing: true, supersedes: true },
    release: { step: "RELEASE", refusals: ["was-lost"] },
  },
  stock: {
    [SUPPLY]: { step: OBSERVE },
    "read-stock": { step: OBSERVE },
    sale: { step: "SELL", refusals: ["sold-out"], supersedes: true },
    run: { step: "SELL" },
    reserve: { step: "RESERVE", refusals: ["sold-out"] },
    confirm: { step: "CONFIRM", refusals: ["closed"] },
    cancel: { step: "CANCEL", refusals: ["closed"] },
  },
  journal: {
    "claim-run": { step: "CLAIM_RUN", refusals: ["ended"], isPassing: true },
    "renew-run": { step: "RECORD", isPassing: true },
    record: { step: "RECORD", refusals: ["STALE"], isPassing: true },
    "park-run": { step: "PARK", refusals: ["STALE"] },
    "complete-run": { step: "COMPLETE", refusals: ["STALE", "cancelled"] },
    "end-run": { step: "END_RUN", refusals: ["STALE"] },
    "cancel-run": { step: "CANCEL_RUN", refusals: ["ended"] },
  },
} as const satisfies Readonly<Record<string, Operations>>;

type TraceModelName = keyof typeof TRACE_MODELS;

/**
 * The most events of a history, the most of its calls whose effect is open (each one doubles the paths), and the most events
 * of one search. Of any other history, the beginning is replayed.
 */
export const MOST_EVENTS = 20_000;
export const MOST_UNKNOWN = 6;
const MOST_AT_ONCE = 100_000;

/** Returns the histories of locks, resources and runs: each one has the events of one name. */
export function byName(events: readonly CallEvent[]): readonly NameHistory[] {
  const named = events.filter(({ name }) => name !== undefined);
  return [...Map.groupBy(named, ({ name }) => name).values()];
}

/** Looks for a path of each model for each history. */
export async function replay(
  histories: readonly NameHistory[],
  of = Object.keys(TRACE_MODELS) as readonly TraceModelName[],
): Promise<Replay> {
  const events = new Set<CallEvent>();
  const models: Record<string, Share> = {};
  const replayed = () => ({ histories: histories.length, events: events.size, models });
  for (const model of of) {
    const traces = histories.flatMap((history) => tracesOf(model, history));
    const recorded = sumOf(traces, "recorded");
    for (const batch of batchesOf(traces)) {
      models[model] ??= { replayed: 0, recorded };
      const lines = batch.flatMap((trace) => trace.lines);
      const refused = await findRefused(model, lines);
      if (refused?.event) {
        const { history, event } = refused;
        return { ...replayed(), refusal: { model, history, event } };
      }
      models[model] = { replayed: models[model].replayed + sumOf(batch, "replayed"), recorded };
      for (const event of eventsOf(lines)) events.add(event);
    }
  }
  return replayed();
}

/** Tells which event no path of the model allows. */
export function describe({ model, event }: Refusal): string {
  const { client, operation, type, name, token, value, remaining, id, code } = event;
  const known = { token, value, remaining, id, code };
  const details = Object.entries(known).flatMap(([key, is]) =>
    is === undefined ? [] : [`${key} ${is}`],
  );
  return `the model ${model} has no path for ${[`${client} ${operation} ${type}`, name, ...details].join(", ")}`;
}

/** Joins traces to searches of at most MOST_AT_ONCE lines. */
function batchesOf(traces: readonly Trace[]): readonly (readonly Trace[])[] {
  const batches: Trace[][] = [];
  let length = 0;
  for (const trace of traces) {
    length += trace.lines.length;
    const last = batches.at(-1);
    if (last && length <= MOST_AT_ONCE) {
      last.push(trace);
    } else {
      batches.push([trace]);
      length = trace.lines.length;
    }
  }
  return batches;
}

function sumOf(traces: readonly Trace[], what: keyof Share): number {
  return traces.reduce((sum, trace) => sum + trace[what], 0);
}

/** Returns the line that ends all paths. */
async function findRefused(
  model: TraceModelName,
  lines: readonly Line[],
): Promise<Line | undefined> {
  const most = (key: "call" | "id") =>
    lines.reduce((highest, line) => Math.max(highest, line[key]), 1);
  await using folder = await temporaryFolder("trace");
  const { path } = folder;
  const copy = (from: string, to = from) =>
    cp(new URL(from, import.meta.url), join(path, to.slice(to.lastIndexOf("/") + 1)));
  await copy(`${model}.pml`);
  await copy(`traces/${model}.pml`, "model.pml");
  for (const shared of ["steps.h", "calls.h", "replay.h"]) await copy(`traces/${shared}`);
  await writeFile(join(path, "events.h"), tableOf(lines));
  const symbols = [`CALLS=${1 + most("call")}`, `IDS=${most("id")}`, `EVENTS=${lines.length}`];
  const output = await explore(path, symbols, {
    // The next event comes first: calls take effect as late as they can, so that few choices are taken back.
    compiled: ["-DREVERSE"],
    // Calls without an answer end nowhere.
    searched: ["-E"],
  });
  const { violation } = toSearch(output);
  if (violation === "assertion violated 0") return undefined;
  if (violation) throw new Error(output);
  const furthest = lines[Number([...output.matchAll(/^event (\d+)$/gm)].at(-1)?.[1])];
  if (!furthest?.event) throw new Error(output);
  return furthest;
}

/** The numbers that a call has besides its own. */
interface Columns {
  readonly token: number;
  readonly value: number;
  readonly units: number;

  /** Operation ids count from 1. */
  readonly id: number;
  readonly reservedBy: number;
}

const NOTHING: Columns = { token: 0, value: 0, units: 0, id: 0, reservedBy: 0 };

/** An event as the model reads it. */
interface Line extends Columns {
  readonly step: string;
  readonly call: number;
  readonly history: NameHistory;

  /** Undefined for the line before the first event. */
  readonly event?: CallEvent;

  /** The number of the event's time. */
  readonly time: number;
}

function eventsOf(lines: readonly Line[]): ReadonlySet<CallEvent> {
  return new Set(lines.flatMap(({ event }) => event ?? []));
}

function tableOf(lines: readonly Line[]): string {
  const columns = ["step", "call", "time", ...Object.keys(NOTHING)] as const;
  const rows = lines.map((line) => `{${columns.map((column) => line[column as keyof Line])}},`);
  return `static const struct { int ${columns}; } events[] = {
${rows.join("\n")}
  {0}
};
static int furthest = -1;
`;
}

/** A history as the model reads it, up to the bounds of a search. */
interface Trace extends Share {
  readonly lines: readonly Line[];
}

/** Returns one trace, or none if the model has nothing of the history. */
function tracesOf(model: TraceModelName, all: NameHistory): readonly Trace[] {
  const operations: Operations = TRACE_MODELS[model];
  const history = all
    .filter(({ operation }) => operation in operations)
    .toSorted((a, b) => a.time - b.time);
  const has = (name: string) => history.some(({ operation }) => operation === name);
  if (Object.entries(operations).some(([name, { isNeeded }]) => isNeeded && !has(name))) return [];
  const supplied = history.find(({ operation }) => operation === SUPPLY)?.value ?? 0;
  const trace = new TraceWriter(operations, history, supplied).write();
  return trace.recorded > 0 ? [trace] : [];
}

/** Writes the lines of one history. */
class TraceWriter {
  readonly #operations: Operations;
  readonly #history: NameHistory;
  readonly #calls: ReadonlyMap<CallEvent, Call>;
  readonly #tokens: ReadonlyMap<string, number>;
  readonly #times: ReadonlyMap<number, number>;
  readonly #lines: Line[];
  readonly #open = new Numbers<Call>();
  readonly #ids = new Numbers<string>();

  /** The calls of each operation id that have not ended. */
  readonly #uses = new Map<string, number>();
  readonly #tried = new Set<string>();

  constructor(operations: Operations, history: NameHistory, supplied: number) {
    this.#operations = operations;
    this.#history = history;
    this.#calls = callsOf(operations, history);
    this.#tokens = numbersOf(history.map(({ token }) => token));
    this.#times = numbersOf(history.flatMap(({ time, until }) => [time, until]));
    this.#lines = [{ step: "RESET", call: 0, time: 0, history, ...NOTHING, value: supplied }];
    for (const { ids, step } of new Set(this.#calls.values())) {
      // A reservation may expire after its last call.
      const more = step === "RESERVE" ? 2 : 1;
      for (const id of ids) this.#uses.set(id, (this.#uses.get(id) ?? 0) + more);
    }
  }

  write(): Trace {
    let end: number | undefined;
    for (const [at, event] of this.#history.entries()) {
      if (end === undefined && (at === MOST_EVENTS || this.#hasManyUnknown())) {
        end = this.#lines.length;
      }
      const { type, operation, token, until, code = "" } = event;
      const value = until === undefined ? event.value : this.#times.get(until);
      const { step, supersedes, refusals } = this.#operations[operation] as Operation;
      const call = this.#calls.get(event);
      if (isSeen(step) && type === "ok") {
        this.#add(event, { step, token: this.#numberOf(token), value: value ?? 0 });
      }
      if (isSeen(step) && type === "fail" && refusals?.includes(code)) {
        this.#add(event, { step: GIVE_UP, token: this.#numberOf(token) });
      }
      if (!call || type === "unknown") continue;
      if (type === "invoke") {
        this.#send(event, call);
        continue;
      }
      this.#end(event, call, type === "ok" ? "SUCCEED" : "FAIL");
      if (type === "ok" && supersedes && call.isFirst) this.#forgetBefore(event);
    }
    const lines = this.#lines.slice(0, end);
    return { lines, replayed: eventsOf(lines).size, recorded: eventsOf(this.#lines).size };
  }

  #hasManyUnknown(): boolean {
    return this.#open.used().filter(({ isAnswered }) => !isAnswered).length > MOST_UNKNOWN;
  }

  #send(event: CallEvent, call: Call): void {
    const [id, reservation] = call.ids;
    call.isFirst = id === undefined || !this.#tried.has(id);
    if (id !== undefined) this.#tried.add(id);
    const { step, value, units } = call;
    this.#add(event, {
      ...{ step, value, units, call: this.#open.numberOf(call), token: this.#numberOf(call.token) },
      id: id === undefined ? 0 : 1 + this.#ids.numberOf(id),
      reservedBy: reservation === undefined ? 0 : 1 + this.#ids.numberOf(reservation),
    });
  }

  #end(event: CallEvent, call: Call, step: "SUCCEED" | "FAIL" | "FORGET"): void {
    this.#add(event, { step, call: this.#open.numberOf(call) });
    this.#open.free(call);
    for (const id of call.ids) {
      const uses = (this.#uses.get(id) ?? 0) - 1;
      this.#uses.set(id, uses);
      if (uses > 0) continue;
      this.#add(event, { step: "FREE", id: 1 + this.#ids.numberOf(id) });
      this.#ids.free(id);
    }
  }

  /** Forgets the calls without an answer that the resource would refuse from now on. */
  #forgetBefore(event: CallEvent): void {
    for (const call of this.#open.used()) {
      const isLate = call.token !== undefined && call.token < (event.token ?? "");
      if (isLate && !call.isAnswered) this.#end(event, call, "FORGET");
    }
  }

  #numberOf(token: string | undefined): number {
    return this.#tokens.get(token ?? "") ?? 0;
  }

  #add(event: CallEvent, line: Pick<Line, "step"> & Partial<Line>): void {
    const time = this.#times.get(event.time) ?? 0;
    this.#lines.push({ history: this.#history, event, time, call: 0, ...NOTHING, ...line });
  }
}

/** Gives numbers from 0, and gives them again when they are free. */
class Numbers<T> {
  readonly #numbers = new Map<T, number>();
  readonly #free: number[] = [];

  numberOf(one: T): number {
    const number = this.#numbers.get(one) ?? this.#free.pop() ?? this.#numbers.size;
    this.#numbers.set(one, number);
    return number;
  }

  free(one: T): void {
    this.#free.push(this.numberOf(one));
    this.#numbers.delete(one);
  }

  used(): readonly T[] {
    return [...this.#numbers.keys()];
  }
}

interface Call extends Pick<Columns, "value" | "units"> {
  readonly step: string;
  readonly token: string | undefined;

  /** The operation id, and that of the reservation. */
  readonly ids: readonly string[];
  readonly isAnswered: boolean;

  /** Whether no call before has this operation id. The answer to a repeated one proves nothing about the fence. */
  isFirst?: boolean;
}

/** Returns the calls by their two events. */
function callsOf(operations: Operations, history: NameHistory): ReadonlyMap<CallEvent, Call> {
  const calls = new Map<CallEvent, Call>();
  const invoked = new Map<string, CallEvent>();
  const add = (invoke: CallEvent, end?: CallEvent) => {
    const operation = operations[invoke.operation];
    if (!operation || isSeen(operation.step) || !mayHaveEffect(operation, end)) return;
    const call = toCall(operation.step, { ...invoke, ...end }, end);
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

function toCall(step: string, event: CallEvent, end: CallEvent | undefined): Call {
  const { token, value, id, units = 1, remaining, reservation } = event;
  const ids = [id, reservation].filter((one) => one !== undefined);
  const isAnswered = end?.type === "ok" || end?.type === "fail";
  const about = { token, units, ids, isAnswered };
  if (id !== undefined) return { ...about, step, value: remaining ?? UNKNOWN };
  if (step === "WRITE") return { ...about, step, value: (value ?? 0) - 1 };
  // A register may answer a claim with its value.
  const readsToo = step === "CLAIM" && value !== undefined;
  return { ...about, step: readsToo ? "CLAIM_AND_READ" : step, value: value ?? 0 };
}

function isSeen(step: string): boolean {
  return step === OBSERVE || step === OWNER;
}

function mayHaveEffect({ refusals, isPassing }: Operation, end: CallEvent | undefined): boolean {
  if (end?.type === "ok") return true;
  if (end?.type === "fail") return refusals?.includes(end.code ?? "") ?? false;
  return !isPassing;
}

/** Numbers the defined values in their order, from 1. */
function numbersOf<T extends string | number>(
  all: readonly (T | undefined)[],
): ReadonlyMap<T, number> {
  const inOrder = [...new Set(all.filter((one) => one !== undefined))].sort((a, b) =>
    a < b ? -1 : 1,
  );
  return new Map(inOrder.map((one, i) => [one, i + 1]));
}
