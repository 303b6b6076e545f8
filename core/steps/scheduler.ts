import { deadline } from "../lock/abort.ts";
import type { Millis } from "../lock/time.ts";
import type { Runtime } from "./contract.ts";
import type { EntityHandle } from "./entity/actor.ts";
import { entity } from "./entity/entity.ts";
import type { Schedule } from "./schedule.ts";
import type { Schema } from "./schema.ts";
import type { AnyWorkflow } from "./workflow.ts";

type ScheduledStarts = Awaited<ReturnType<Runtime["startScheduled"]>>;

/** The part of the runtime that the start of a slot needs. */
interface SlotStart<Run> {
  /** Rejects for an invalid input. */
  prepare(workflow: AnyWorkflow, input: unknown, runId: string): Promise<Run>;

  /** Starts the runs that do not exist. */
  start(runs: readonly Run[]): Promise<void>;
  position(workflow: string): SchedulePosition;
}

const time: Schema<Millis> = { "~standard": { version: 1, vendor: "lockstep", validate: asTime } };
const position: Schema<Millis | null> = {
  "~standard": {
    version: 1,
    vendor: "lockstep",
    validate: (value) => (value === null ? { value } : asTime(value)),
  },
};

function asTime(value: unknown) {
  return typeof value === "number" ? { value } : { issues: [{ message: "is not a time" }] };
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

/** The longest wait until a position is recorded. */
const LONGEST_MOVE: Millis = 2_000;

/** Starts the missed slots of the workflows' schedules, by the clock of this process. */
export async function startMissedSlots<Run>(
  workflows: readonly AnyWorkflow[],
  starts: SlotStart<Run>,
): Promise<ScheduledStarts> {
  const now = Date.now();
  const started: string[] = [];
  const refused: ScheduledStarts["refused"][number][] = [];
  let nextIn = Number.POSITIVE_INFINITY;
  for (const [workflow, schedule] of scheduled(workflows)) {
    nextIn = Math.min(nextIn, schedule.next(now) - now);
    const slots = await missedSlots(workflow.name, schedule, starts, now);
    const runs: Run[] = [];
    for (const slot of slots) {
      const runId = `${workflow.name}:${slot.toISOString()}`;
      try {
        runs.push(await starts.prepare(workflow, schedule.input(slot), runId));
        started.push(runId);
      } catch (error) {
        refused.push({ runId, error });
        break;
      }
    }
    await starts.start(runs);
    const last = slots[runs.length - 1];
    if (last) await move(starts.position(workflow.name), "pass", last.getTime());
  }
  return { started, refused, nextIn };
}

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

async function missedSlots(
  name: string,
  schedule: Schedule<unknown>,
  starts: SlotStart<unknown>,
  now: Millis,
): Promise<readonly Date[]> {
  const at = starts.position(name);
  const from = await at.state();
  if (from !== null) return schedule.missed(from, now);
  await move(at, "begin", now);
  return [];
}

/** A dead process may have the position's turn. The operation waits in the inbox then: a later call handles it. */
async function move(at: SchedulePosition, handler: "begin" | "pass", time: Millis): Promise<void> {
  using limit = deadline(LONGEST_MOVE, () => new Error("another process has the turn"));
  const options = { operationId: `${handler} ${time}`, signal: limit.signal };
  await at.call(handler, time, options).catch((error) => {
    if (!limit.signal.aborted) throw error;
  });
}
