import { checkWhole } from "../../core/lock/checks.ts";
import { listener } from "../../core/lock/listener.ts";
import type { Deadline } from "../../core/lock/time.ts";
import type { Runtime } from "../../core/steps/runtime.ts";
import type { RunOutcome } from "../../core/steps/workflow.ts";
import {
  deadlineOf,
  type LambdaContext,
  LEAST_WORK,
  type ReserveOption,
  toReserve,
} from "../lambda/invocation.ts";
import { someAtATime } from "../lambda/some-at-a-time.ts";
import { from, type Source } from "../lambda/source.ts";

export interface SweepOptions extends ReserveOption {
  /** How many runs at a time. Default 4. */
  readonly concurrency?: number;

  /** Told how each run went. What it throws is ignored. */
  readonly onOutcome?: (outcome: RunOutcome<unknown>) => void;

  /** Told of a run that could not be gone on with. What it throws is ignored. */
  readonly onError?: (runId: string, error: unknown) => void;
}

/** How often runs were gone on with, and what came of it. */
export interface Swept {
  readonly completed: number;
  readonly failed: number;
  readonly suspended: number;
  readonly busy: number;

  /** It could not be done. */
  readonly refused: number;

  /** Ended runs whose time was over, and that are forgotten now. */
  readonly purged: number;
}

/**
 * A Lambda handler for a schedule of its own, such as every minute: it goes on with all runs that are due, whoever
 * has begun them, and forgets ended ones. Any number of them may run at the same time.
 *
 * Its runtime knows the workflows: `createRuntime({ workflows })`. Rejects when the journal does not answer.
 */
export function sweepHandler(
  runtime: Source<Runtime>,
  options: SweepOptions = {},
): (event: unknown, context: LambdaContext) => Promise<Swept> {
  const reserve = toReserve(options);
  checkWhole("concurrency", options.concurrency ?? 4, 1, 1_000);
  return async (_event, context) => {
    const deadline = deadlineOf(context, reserve);
    const rt = await from(runtime);
    const counts = await resumeDue(rt, deadline, options);
    return { ...counts, purged: await purge(rt, deadline) };
  };
}

type Counts = Record<Exclude<keyof Swept, "purged">, number>;

/** How many runs are asked for at a time. */
const PAGE = 100;

async function resumeDue(
  runtime: Runtime,
  deadline: Deadline,
  { concurrency = 4, ...hooks }: SweepOptions,
): Promise<Counts> {
  const [onOutcome, onError] = [listener(hooks.onOutcome), listener(hooks.onError)];
  const counts = { completed: 0, failed: 0, suspended: 0, busy: 0, refused: 0 };
  // Those that stay due: once is enough for one sweep.
  const seen = new Set<string>();
  const resume = async (runId: string) => {
    if (deadline.remaining() < LEAST_WORK) return;
    try {
      const outcome = await runtime.resume(runId, { deadline });
      counts[outcome.status] += 1;
      if (staysDue(outcome)) seen.add(runId);
      onOutcome(outcome);
    } catch (error) {
      counts.refused += 1;
      seen.add(runId);
      onError(runId, error);
    }
  };
  while (deadline.remaining() >= LEAST_WORK) {
    const { workflows, journal } = runtime;
    const limit = Math.min(PAGE + seen.size, MOST_DUE);
    const due = await journal.due({ workflows, limit });
    const fresh = due.filter((runId) => !seen.has(runId));
    if (fresh.length === 0) break;
    await someAtATime(fresh, concurrency, resume);
  }
  return counts;
}

/** Somebody else has it, or its next step needs more time than there is: asking again would be of no use. */
function staysDue(outcome: RunOutcome<unknown>): boolean {
  return (
    outcome.status === "busy" || (outcome.status === "suspended" && outcome.reason === "deadline")
  );
}

/** The most that a journal is asked for. */
const MOST_DUE = 10_000;

async function purge({ journal }: Runtime, deadline: Deadline): Promise<number> {
  let purged = 0;
  while (deadline.remaining() >= LEAST_WORK) {
    const some = await journal.purge(PAGE);
    purged += some;
    if (some < PAGE) break;
  }
  return purged;
}
