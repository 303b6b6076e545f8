import type { NewRun, StartedRun } from "../journal/runs.ts";
import { deadline } from "../lock/abort.ts";
import { hasCode, quote } from "../lock/errors.ts";
import type { Millis } from "../lock/time.ts";
import type { Runtime } from "./contract.ts";
import type { EntityHandle } from "./entity/actor.ts";
import { entity } from "./entity/entity.ts";
import { inputConflict } from "./errors.ts";
import type { PreparedRun } from "./run-executor.ts";
import type { Schedule } from "./schedule.ts";
import type { Schema } from "./schema.ts";
import type { AnyWorkflow } from "./workflow.ts";

type ScheduledStarts = Awaited<ReturnType<Runtime["startScheduled"]>>;
type Refused = ScheduledStarts["refused"][number];

/** The part of the runtime that the start of a slot needs. */
interface SlotStart {
  /** Rejects for an invalid input. A workflow that names its runs names this one, too. */
  prepare(workflow: AnyWorkflow, input: unknown, slotId: string): Promise<PreparedRun>;

  /** Starts the runs that do not exist. Resolves to their states. */
  start(runs: readonly NewRun[]): Promise<readonly StartedRun[]>;
  position(workflow: string): SchedulePosition;
  log(workflow: string): ScheduleLog;
}

interface Starts extends SlotStart {
  readonly started: string[];
  readonly refused: Refused[];
}

interface PreparedSlot extends PreparedRun {
  /** The run's id, unless the workflow names its runs. */
  readonly slotId: string;
}

const time: Schema<Millis> = schemaOf("a time", isTime);
const position: Schema<Millis | null> = schemaOf(
  "a time",
  (value): value is Millis | null => value === null || isTime(value),
);
const logged: Schema<Logged> = schemaOf("the log of a schedule", isLogged);

function schemaOf<T>(what: string, is: (value: unknown) => value is T): Schema<T, T> {
  const issues = [{ message: `is not ${what}` }];
  const validate = (value: unknown) => (is(value) ? { value } : { issues });
  return { "~standard": { version: 1, vendor: "lockstep", validate } };
}

function isTime(value: unknown): value is Millis {
  return typeof value === "number";
}

interface Logged {
  /** When a process first saw a schedule of the workflow, by its slots: it starts none from before. */
  readonly since: Readonly<Record<string, Millis>>;

  /** Slots before the position that have had no valid input. */
  readonly refused: readonly Millis[];
}

function isLogged(value: unknown): value is Logged {
  const { since, refused } = Object(value) as Partial<Logged>;
  return typeof since === "object" && since !== null && Array.isArray(refused);
}

/**
 * The last slot of each schedule that was started, by the workflow's name: it outlasts the runs, which are deleted after
 * their `keep`. A new schedule begins at the time when a process first sees it.
 */
export const schedulePosition = entity(
  { name: "lockstep.schedule", state: position, initial: null },
  (on) => ({
    begin: on(time, async ({ state }, at) => ({ state: state ?? at })),
    pass: on(time, async ({ state }, slot) => ({ state: Math.max(state ?? slot, slot) })),
  }),
);

type SchedulePosition = EntityHandle<Millis | null, (typeof schedulePosition)["handlers"]>;

/** Beside the position, which earlier versions write as a number. */
export const scheduleLog = entity(
  { name: "lockstep.schedule-log", state: logged, initial: { since: {}, refused: [] } },
  (on) => ({
    /** The first time counts. */
    see: on(logged, async ({ state }, { since }) => ({
      state: { ...state, since: { ...since, ...state.since } },
    })),
    refuse: on(logged, async ({ state }, { refused }) => ({
      state: {
        ...state,
        refused: [...new Set([...state.refused, ...refused])].slice(-MOST_REFUSED),
      },
    })),
    accept: on(logged, async ({ state }, { refused: accepted }) => ({
      state: { ...state, refused: state.refused.filter((slot) => !accepted.includes(slot)) },
    })),
  }),
);

type ScheduleLog = EntityHandle<Logged, (typeof scheduleLog)["handlers"]>;

const MOST_REFUSED = 1_000;

/** The longest wait until a position is recorded. */
const LONGEST_MOVE: Millis = 2_000;

/** A position that is further ahead comes from a wrong clock. */
const MOST_AHEAD: Millis = 3_600_000;

/** Starts the missed slots of the workflows' schedules, by the clock of this process. Rejects in an outage of the journal. */
export async function startMissedSlots(
  workflows: readonly AnyWorkflow[],
  starts: SlotStart,
): Promise<ScheduledStarts> {
  const now = Date.now();
  const started: string[] = [];
  const refused: Refused[] = [];
  let nextIn = Number.POSITIVE_INFINITY;
  for (const [workflow, schedule] of scheduled(workflows)) {
    try {
      nextIn = Math.min(nextIn, schedule.next(now) - now);
      await startSlots(workflow, schedule, now, { ...starts, started, refused });
    } catch (error) {
      if (hasCode(error, ...OUTAGES)) throw error;
      refused.push({ runId: workflow.name, error });
    }
  }
  return { started, refused, nextIn };
}

const OUTAGES = ["STORE_UNAVAILABLE", "STORE_REFUSED", "STORE_CLOSED", "UNKNOWN_OUTCOME"] as const;

/** The schedule of the newest version counts: a version without one ends it. */
function scheduled(workflows: readonly AnyWorkflow[]) {
  const newest = new Map<string, AnyWorkflow>();
  for (const workflow of workflows) {
    const other = newest.get(workflow.name);
    if (!other || other.version < workflow.version) newest.set(workflow.name, workflow);
  }
  return [...newest.values()].flatMap((workflow): [AnyWorkflow, Schedule<unknown>][] =>
    workflow.schedule ? [[workflow, workflow.schedule]] : [],
  );
}

async function startSlots(
  workflow: AnyWorkflow,
  schedule: Schedule<unknown>,
  now: Millis,
  starts: Starts,
): Promise<void> {
  const { name } = workflow;
  const [position, log] = [starts.position(name), starts.log(name)];
  const { from, refusedBefore } = await positionOf(schedule, position, log, now);
  if (from > now + MOST_AHEAD) throw standsStill(name, from);
  const missed = schedule.missed(from, now).map((slot) => slot.getTime());
  const slots: PreparedSlot[] = [];
  const [accepted, refused]: [Millis[], Millis[]] = [[], []];
  for (const slot of [...refusedBefore, ...missed]) {
    const at = new Date(slot);
    const slotId = `${name}:${at.toISOString()}`;
    try {
      slots.push({ ...(await starts.prepare(workflow, schedule.input(at), slotId)), slotId });
      accepted.push(slot);
    } catch (error) {
      starts.refused.push({ runId: slotId, error });
      refused.push(slot);
    }
  }
  // A schedule whose slots are all refused stays where it is.
  if (slots.length === 0) return;
  await startRuns(slots, starts);
  const newlyRefused = refused.filter((slot) => missed.includes(slot));
  const newlyAccepted = accepted.filter((slot) => refusedBefore.includes(slot));
  if (newlyRefused.length > 0) await note(log, "refuse", { refused: newlyRefused });
  if (newlyAccepted.length > 0) await note(log, "accept", { refused: newlyAccepted });
  const last = missed.at(-1);
  if (last !== undefined) await move(position, "pass", last);
}

/**
 * Starts the runs of slots. Slots of a workflow that names its runs may share a run. No later call repeats a slot whose id
 * belongs to a run with another input.
 */
async function startRuns(
  slots: readonly PreparedSlot[],
  { start, started, refused }: Starts,
): Promise<void> {
  const first = new Map<string, NewRun>();
  for (const { run } of slots) if (!first.has(run.runId)) first.set(run.runId, run);
  const states = await start([...first.values()]);
  const conflicts = new Set([...first.keys()].filter((_, i) => states[i]?.kind === "conflict"));
  const ids = new Set<string>();
  for (const { run, onConflict, slotId } of slots) {
    const { runId, inputHash } = run;
    const isOther = conflicts.has(runId) || first.get(runId)?.inputHash !== inputHash;
    // Other code has started the slot itself with another input.
    const isRefused = isOther && runId !== slotId && onConflict === "reject";
    if (isRefused) refused.push({ runId: slotId, error: inputConflict(runId) });
    else ids.add(runId);
  }
  started.push(...ids);
}

/** Reads from when on slots are to be started, and which ones of before. Begins a new schedule now. */
async function positionOf(
  { slots }: Schedule<unknown>,
  position: SchedulePosition,
  log: ScheduleLog,
  now: Millis,
) {
  const [last, { since, refused }] = await Promise.all([position.state(), log.state()]);
  // Earlier versions have kept no log.
  const isOfEarlierVersion = last !== null && Object.keys(since).length === 0;
  const seen = since[slots] ?? (isOfEarlierVersion ? Math.min(last, now) : now);
  if (last === null) await move(position, "begin", now);
  if (since[slots] === undefined) await note(log, "see", { since: { [slots]: seen } });
  // Where an operator has reset the position, a clock that was ahead may have seen the schedule first.
  const begun = seen > now + MOST_AHEAD ? 0 : seen;
  const from = Math.max(last ?? now, begun);
  return { from, refusedBefore: refused.filter((slot) => slot > begun) };
}

function standsStill(workflow: string, until: Millis): Error {
  const problem = `stands still until ${new Date(until).toISOString()}: a clock was ahead`;
  const advice = "check the clock of this process, or set the position back (docs/operations.md)";
  return new Error(`the schedule of ${quote(workflow)} ${problem}; ${advice}`);
}

/** A dead process may have the position's turn. The operation waits in the inbox then: a later call handles it. */
async function move(at: SchedulePosition, handler: "begin" | "pass", time: Millis): Promise<void> {
  await inTime((signal) => at.call(handler, time, { operationId: `${handler} ${time}`, signal }));
}

async function note(
  log: ScheduleLog,
  handler: "see" | "refuse" | "accept",
  change: Partial<Logged>,
): Promise<void> {
  const input = { since: {}, refused: [], ...change };
  await inTime((signal) => log.call(handler, input, { operationId: crypto.randomUUID(), signal }));
}

async function inTime(call: (signal: AbortSignal) => Promise<unknown>): Promise<void> {
  using limit = deadline(LONGEST_MOVE, () => new Error("another process has the turn"));
  await call(limit.signal).catch((error) => {
    if (!limit.signal.aborted) throw error;
  });
}
