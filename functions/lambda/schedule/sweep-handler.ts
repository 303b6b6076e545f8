import { deadline as limitOf, noAnswer, race } from "../../../core/lock/abort.ts";
import { checkWhole } from "../../../core/lock/checks.ts";
import { listener } from "../../../core/lock/listener.ts";
import { checkOptionNames, type OptionNames } from "../../../core/lock/options.ts";
import type { Deadline, Millis } from "../../../core/lock/time.ts";
import type { DueExecution, Runtime } from "../../../core/steps/contract.ts";
import type { RunOutcome } from "../../../core/steps/workflow.ts";
import {
  deadlineOf,
  LAST_WAIT,
  type LambdaContext,
  type LockWaitOption,
  lockWaitOf,
  MIN_WORK_TIME,
  type ReserveOption,
  reserveOf,
  withinInvocation,
} from "../../invocation/invocation.ts";
import { type Provider, resolve } from "../../invocation/provider.ts";
import { logFailedRun, logFailure } from "../../telemetry/log-line.ts";

export interface SweepHandlerOptions extends ReserveOption, LockWaitOption {
  /** The number of runs that are resumed at a time. Default 4. */
  readonly concurrency?: number;

  /** As that of `scheduleHandler`, with the same default. */
  readonly onOutcome?: (outcome: RunOutcome<unknown>) => void;

  /**
   * Called for each run that could not be resumed or started, and with the name of a workflow whose schedule could not be
   * read or moved. Errors of the listener are ignored. Default: each is written to stderr as one line of JSON, with the stack.
   */
  readonly onError?: (runId: string, error: unknown) => void;
}

const OPTIONS = {
  concurrency: true,
  onOutcome: true,
  onError: true,
  reserve: true,
  lockWait: true,
} satisfies OptionNames<SweepHandlerOptions>;

/** The number of resumed runs by outcome, and what else was done. */
export interface SweepReport {
  readonly completed: number;
  readonly failed: number;
  readonly suspended: number;

  /** Runs that cannot be executed for now, and are tried again. */
  readonly blocked: number;
  readonly busy: number;

  /** Runs that could not be resumed or started, and schedules that could not be read or moved. */
  readonly refused: number;

  /** Slots of the workflows' schedules that were started, by this sweep or by another process at the same time. */
  readonly scheduled: number;

  /** Operations of entities that were handled: told ones, and those whose process has crashed. */
  readonly delivered: number;

  /** Ended runs, and answers of entities, that were deleted because their retention was over. */
  readonly purged: number;
}

/**
 * Returns a Lambda handler for a schedule of its own, such as every minute. The handler starts the slots of the
 * workflows' schedules that have begun, resumes all due runs, whichever process started them, handles the operations of
 * entities that wait, and deletes what is over. Any number of sweeps may run at the same time.
 *
 * The runtime must know the workflows: `createRuntime({ workflows })`. Rejects when the journal does not answer.
 */
export function sweepHandler(
  runtime: Provider<Runtime>,
  options: SweepHandlerOptions = {},
): (event: unknown, context: LambdaContext) => Promise<SweepReport> {
  checkOptionNames("sweepHandler", options, OPTIONS);
  const reserve = reserveOf(options);
  const lockWait = lockWaitOf(options);
  const onError = listener(options.onError ?? logRefusal);
  const onOutcome = listener(options.onOutcome ?? logFailedRun);
  checkWhole("concurrency", options.concurrency ?? 4, 1, 1_000);
  const sweep = async (deadline: Deadline): Promise<SweepReport> => {
    const rt = await resolve(runtime);
    // A failure is thrown when the due runs were resumed.
    const [starting] = await Promise.allSettled([rt.startScheduled()]);
    if (starting.status === "fulfilled") {
      for (const { runId, error } of starting.value.refused) onError(runId, error);
    }
    using runsAlone = limitOf(deadline.remaining() * RUNS_ALONE, noAnswer);
    const resuming = resumeDue(rt, { deadline, lockWait }, { ...options, onError, onOutcome });
    // However many runs are due, the last part of the time is for the rest, too.
    await race(resuming, runsAlone.signal).catch((error) => {
      if (error !== runsAlone.signal.reason) throw error;
    });
    const rest = deliverAndPurge(rt, deadline);
    // A failure is thrown when no run is executed any more.
    rest.catch(() => {});
    const [counts, others] = [await resuming, await rest];
    if (starting.status === "rejected") throw starting.reason;
    const { started, refused } = starting.value;
    const scheduled = started.length;
    return { ...counts, refused: counts.refused + refused.length, scheduled, ...others };
  };
  return async (_event, context) => {
    const deadline = deadlineOf(context, reserve);
    return await withinInvocation(deadline, reserve * LAST_WAIT, () => sweep(deadline));
  };
}

/** The part of a sweep's time in which it resumes runs and does nothing else, as long as there are any. */
const RUNS_ALONE = 4 / 5;

type SweepHooks = Required<Pick<SweepHandlerOptions, "onOutcome" | "onError">>;

function logRefusal(runId: string, error: unknown): void {
  logFailure("refused", { runId, error });
}

type Counts = Record<Exclude<keyof SweepReport, "scheduled" | "delivered" | "purged">, number>;

/** The number of ended runs that one request deletes. */
const PAGE = 100;

async function resumeDue(
  runtime: Runtime,
  limits: { readonly deadline: Deadline; readonly lockWait: Millis },
  { concurrency = 4, onOutcome, onError }: SweepHandlerOptions & SweepHooks,
): Promise<Counts> {
  const counts = { completed: 0, failed: 0, suspended: 0, blocked: 0, busy: 0, refused: 0 };
  // Runs that stay due are resumed once per sweep.
  const seen = new Set<string>();
  const resume = async ({ runId, part, execute }: DueExecution) => {
    try {
      const outcome = await execute(limits);
      counts[outcome.status] += 1;
      if (staysDue(outcome) && !(await hasContinued(runId, part))) seen.add(runId);
      onOutcome(outcome);
    } catch (error) {
      counts.refused += 1;
      seen.add(runId);
      onError(runId, error);
    }
  };
  const hasContinued = async (runId: string, part: number) => {
    const run = await runtime.journal.find(runId).catch(() => undefined);
    return run !== undefined && run.part > part;
  };
  const resumeAll = async () => {
    while (limits.deadline.remaining() >= MIN_WORK_TIME) {
      const [run] = await runtime.claimDue({ limit: 1, except: [...seen] });
      if (run === undefined) return;
      await resume(run);
    }
  };
  const all = await Promise.allSettled(Array.from({ length: concurrency }, resumeAll));
  for (const one of all) if (one.status === "rejected") throw one.reason;
  return counts;
}

/**
 * The run is held by another process, or its next step needs more time than is left: resuming it again is useless, unless
 * it has begun another history.
 */
function staysDue(outcome: RunOutcome<unknown>): boolean {
  return (
    outcome.status === "busy" || (outcome.status === "suspended" && outcome.reason === "deadline")
  );
}

async function deliverAndPurge(runtime: Runtime, deadline: Deadline) {
  const delivered = await deliver(runtime, deadline);
  return { delivered, purged: await purge(runtime, deadline) };
}

/** The longest delivery of one sweep. The next sweep resumes runs first, and then goes on. */
const LONGEST_DELIVERY: Millis = 30_000;

/** Begins no operation without time for its work. */
async function deliver(runtime: Runtime, deadline: Deadline): Promise<number> {
  const span = deadline.remaining() - MIN_WORK_TIME;
  if (span <= 0) return 0;
  using limit = limitOf(Math.min(span, LONGEST_DELIVERY), noAnswer);
  return await runtime.deliver(limit.signal);
}

async function purge({ journal }: Runtime, deadline: Deadline): Promise<number> {
  let purged = 0;
  while (deadline.remaining() >= MIN_WORK_TIME) {
    const count = await journal.purge(PAGE);
    purged += count;
    if (count < PAGE) break;
  }
  return purged;
}
