import type { SQSBatchResponse, SQSEvent, SQSRecord } from "aws-lambda";
import { checkOneOf } from "../../../core/lock/checks.ts";
import { quote } from "../../../core/lock/errors.ts";
import { listener } from "../../../core/lock/listener.ts";
import { checkOptionNames, type OptionNames } from "../../../core/lock/options.ts";
import type { Millis } from "../../../core/lock/time.ts";
import type { Runtime } from "../../../core/steps/contract.ts";
import { checkWorkflow } from "../../../core/steps/run-executor.ts";
import type { RunError, RunOutcome, Workflow } from "../../../core/steps/workflow.ts";
import {
  type LambdaContext,
  type LockWaitOption,
  lockWaitOf,
} from "../../invocation/invocation.ts";
import { type Provider, resolve } from "../../invocation/provider.ts";
import { groupMessages, type Invocation, processBatch } from "./batch.ts";
import { type Disposition, DONE, poison, retry } from "./disposition.ts";
import { ageOf, bodyOf, isFifo } from "./message.ts";
import { BATCH_OPTIONS, type BatchOptions, checkOptions, type PoisonOptions } from "./options.ts";
import { inTraceOf } from "./trace.ts";

export interface QueueHandlerOptions<Input> extends BatchOptions, LockWaitOption {
  /** Returns the workflow's input. Default: the body as JSON. An error of `input` makes the message poison. */
  readonly input?: (body: unknown, record: SQSRecord) => Input;

  /** Returns the run's id, for a workflow without an `id` of its own. Default: the message's id. */
  readonly id?: (body: unknown, record: SQSRecord) => string;

  /**
   * For a run that has to wait: `keep` keeps its message until the run has ended (default, and always on a FIFO
   * queue, where later messages must wait too); `leave` finishes the message, and a sweep or worker resumes the run. A run
   * that waits for a lock keeps its message in any case, which comes back after a second.
   *
   * A kept message comes back when its run is due. SQS does not notice what ends a wait early, such as a signal or the
   * end of a child: the message of such a run comes back within a minute, later within a tenth of its age and within an
   * hour, which is about 400 deliveries in ten days. With a lower `maxReceiveCount` and long waits, use `leave`, or a
   * queue that is not FIFO.
   */
  readonly parked?: "keep" | "leave";

  readonly poison?: RunPoisonOptions;

  /** Called with the outcome of each run. Errors of the listener are ignored. */
  readonly onOutcome?: (outcome: RunOutcome<unknown>, record: SQSRecord) => void;
}

export interface RunPoisonOptions extends PoisonOptions {
  /**
   * Decides whether a failed run makes its message poison. Default true; an error of `isPoison` makes it poison too. The
   * journal has the outcome in any case.
   */
  readonly isPoison?: (error: RunError) => boolean;
}

const POISON_OPTIONS = { to: true, isPoison: true } satisfies OptionNames<RunPoisonOptions>;
const OPTIONS = {
  ...BATCH_OPTIONS,
  input: true,
  id: true,
  parked: true,
  lockWait: true,
  onOutcome: true,
} satisfies OptionNames<QueueHandlerOptions<unknown>>;

/**
 * Returns a Lambda handler for an SQS queue whose messages are the input of a workflow: one run per message.
 *
 * A message is done when its run has completed, and poison when its run has failed or is blocked by its crashes
 * (RUN_POISONED). The journal counts the attempts and crashes of a run; the number of deliveries does not matter.
 *
 * A message that is delivered after the `keep` of its run has ended executes the workflow again: let `keep` be at least
 * as long as the queue keeps messages.
 */
export function queueHandler<Input, Output>(
  runtime: Provider<Runtime>,
  workflow: Workflow<Input, Output>,
  options: QueueHandlerOptions<Input> = {},
): (event: SQSEvent, context: LambdaContext) => Promise<SQSBatchResponse> {
  checkOptionNames("queueHandler", options, OPTIONS);
  checkOptionNames("poison", options.poison, POISON_OPTIONS);
  checkOneOf("parked", options.parked ?? "keep", ["keep", "leave"]);
  checkWorkflow(workflow);
  const checked = checkOptions(options);
  const lockWait = lockWaitOf(options);
  if (workflow.namesRuns && options.id) {
    const problem = `the workflow ${quote(workflow.name)} names its runs by its own \`id\``;
    throw new TypeError(`${problem}; leave out the option \`id\``);
  }
  const onOutcome = listener(options.onOutcome);
  const executeOne = async (
    rt: Runtime,
    record: SQSRecord,
    invocation: Invocation,
  ): Promise<Disposition> => {
    const message = await readMessage(workflow, options, record);
    if ("error" in message) return poison(message.error);
    const { input, id } = message;
    try {
      const outcome = await rt.execute(workflow, input, { id, lockWait, ...invocation });
      onOutcome(outcome, record);
      return dispositionOf(outcome, options, record);
    } catch (error) {
      return isPermanent(error) ? poison(error) : retry("error", 0, error);
    }
  };
  return (event, context) =>
    processBatch(event, context, checked, {
      group: (records) => groupMessages(records, (record) => record, 1),
      async process(chunk, invocation) {
        // Outside of the completion: a failed `open` is not the fault of a message.
        const rt = await resolve(runtime);
        return chunk.map(
          (record) => () => inTraceOf(record, () => executeOne(rt, record, invocation)),
        );
      },
    });
}

/** Finds every fault of a message before a run exists. */
async function readMessage<Input>(
  workflow: Workflow<Input, unknown>,
  options: QueueHandlerOptions<Input>,
  record: SQSRecord,
): Promise<{ readonly input: Input; readonly id: string } | { readonly error: unknown }> {
  try {
    const body = bodyOf(record);
    const input = options.input ? options.input(body, record) : (body as Input);
    const own = workflow.namesRuns ? undefined : record.messageId;
    const { runId } = await workflow.prepare(input, options.id?.(body, record) ?? own);
    return { input, id: runId };
  } catch (error) {
    return { error };
  }
}

function dispositionOf(
  outcome: RunOutcome<unknown>,
  { parked, poison: poisonOptions }: Pick<QueueHandlerOptions<unknown>, "parked" | "poison">,
  record: SQSRecord,
): Disposition {
  if (outcome.status === "completed") return DONE;
  if (outcome.status === "failed") {
    const { error } = outcome;
    try {
      const isPoison = poisonOptions?.isPoison?.(error) ?? true;
      return isPoison ? poison(error) : DONE;
    } catch (failure) {
      return poison(failure);
    }
  }
  // Another process executes the run and may finish soon, or the run does not exist yet. No wake-up time is known.
  if (outcome.status === "busy") return retry("busy");
  // Its processes crash: messages behind it on a FIFO queue do not wait for that.
  if (outcome.status === "blocked" && outcome.error.code === "RUN_POISONED")
    return poison(outcome.error);
  const waitsForLock = outcome.status === "suspended" && outcome.reason === "lock-busy";
  if (waitsForLock) return retry("busy", outcome.wakeIn);
  if (parked === "leave" && !isFifo(record)) return DONE;
  if (outcome.status === "blocked") return retry("error", outcome.retryIn, outcome.error);
  const { reason, wakeIn } = outcome;
  const mayEndEarly = reason === "signal" || reason === "child";
  if (!mayEndEarly) return retry("parked", wakeIn);
  return retry("parked", Math.min(wakeIn, ageOf(record) / 10, LONGEST_PAUSE));
}

/** Until the message of a run that waits for a signal comes back. */
const LONGEST_PAUSE: Millis = 3_600_000;

const REFUSALS: ReadonlySet<unknown> = new Set(["INPUT_CONFLICT", "INVALID", "TOO_LARGE"]);

/** The journal refuses the message itself: its id belongs to another input, or the message is too large. */
function isPermanent(error: unknown): boolean {
  const { code } = Object(error) as { readonly code?: unknown };
  return REFUSALS.has(code) || error instanceof RangeError;
}
