import type { SQSBatchResponse, SQSEvent, SQSRecord } from "aws-lambda";
import { listener } from "../../core/lock/listener.ts";
import type { Runtime } from "../../core/steps/runtime.ts";
import type { RunError, RunOutcome, Workflow } from "../../core/steps/workflow.ts";
import type { LambdaContext } from "../lambda/invocation.ts";
import { from, type Source } from "../lambda/source.ts";
import { answerBatch, type Invocation } from "./batch.ts";
import { arrange } from "./lines.ts";
import { bodyOf, isFifo } from "./message.ts";
import { type BatchOptions, checkOptions, type PoisonOptions } from "./options.ts";
import { DONE, later, type Verdict } from "./verdict.ts";

export interface QueueOptions<Input> extends BatchOptions {
  /** What the workflow is given. Default: the message's body, as JSON. What it throws makes the message poison. */
  readonly input?: (body: unknown, record: SQSRecord) => Input;

  /** The run's id. Default: the workflow's own; the message's id where it has none. */
  readonly id?: (body: unknown, record: SQSRecord) => string;

  /**
   * What to do with runs that have to wait: `keep` their message until they have ended (default, and always so on
   * FIFO queues, where those behind have to wait too); or `leave` them to a sweeper or a worker, and be done.
   */
  readonly parked?: "keep" | "leave";

  readonly poison?: RunPoisonOptions;

  /** Told how each run went. What it throws is ignored. */
  readonly onOutcome?: (outcome: RunOutcome<unknown>, record: SQSRecord) => void;
}

export interface RunPoisonOptions extends PoisonOptions {
  /** Whether a run that has failed makes its message poison. Default true; its outcome is in the journal anyway. */
  readonly isPoison?: (error: RunError) => boolean;
}

/**
 * A Lambda handler for a queue whose messages are the input of a workflow: one run per message, or per order.
 *
 * A message is done when its run has ended, as a failure too. How often a run was tried and how often a process was
 * lost over it is counted by the journal; how often the message was delivered does not matter.
 */
export function queueHandler<Input, Output>(
  runtime: Source<Runtime>,
  workflow: Workflow<Input, Output>,
  options: QueueOptions<Input> = {},
): (event: SQSEvent, context: LambdaContext) => Promise<SQSBatchResponse> {
  const checked = checkOptions(options);
  const onOutcome = listener(options.onOutcome);
  const carryOne = async (
    rt: Runtime,
    record: SQSRecord,
    invocation: Invocation,
  ): Promise<Verdict> => {
    const message = await read(workflow, options, record);
    if ("error" in message) return { kind: "poison", error: message.error };
    const { input, id } = message;
    try {
      const outcome = await rt.drive(workflow, input, { id, ...invocation });
      onOutcome(outcome, record);
      return verdictOn(outcome, options, isFifo(record));
    } catch (error) {
      return isHopeless(error) ? { kind: "poison", error } : later("error", 0, error);
    }
  };
  return (event, context) =>
    answerBatch(event, context, checked, {
      arrange: (records) => arrange(records, (record) => record, 1),
      async carry(unit, invocation) {
        // What it rejects with is not the fault of a message.
        const rt = await from(runtime);
        return unit.map((record) => () => carryOne(rt, record, invocation));
      },
    });
}

/** Finds everything that is wrong with a message before there is a run. */
async function read<Input>(
  workflow: Workflow<Input, unknown>,
  options: QueueOptions<Input>,
  record: SQSRecord,
): Promise<{ readonly input: Input; readonly id: string } | { readonly error: unknown }> {
  try {
    const body = bodyOf(record);
    const input = options.input ? options.input(body, record) : (body as Input);
    const own = workflow.namesRuns ? undefined : record.messageId;
    const { runId } = await workflow.prepare(input, options.id ? options.id(body, record) : own);
    return { input, id: runId };
  } catch (error) {
    return { error };
  }
}

function verdictOn(
  outcome: RunOutcome<unknown>,
  { parked, poison }: Pick<QueueOptions<unknown>, "parked" | "poison">,
  fifo: boolean,
): Verdict {
  if (outcome.status === "completed") return DONE;
  if (outcome.status === "failed") {
    const { error } = outcome;
    const isPoison = poison && (poison.isPoison?.(error) ?? true);
    return isPoison ? { kind: "poison", error } : DONE;
  }
  // Nobody says for how long: the one who carries it may be done in a moment. There may be no run yet, either.
  if (outcome.status === "busy") return later("busy");
  if (parked === "leave" && !fifo) return DONE;
  const { reason, wakeIn } = outcome;
  return reason === "lock-busy" ? later("busy", wakeIn) : later("parked", wakeIn);
}

/** The journal refuses the message itself: its id was used for another one, or it is too long. */
function isHopeless(error: unknown): boolean {
  const code = (error as { readonly code?: unknown } | undefined)?.code;
  return code === "INPUT_CONFLICT" || code === "INVALID" || error instanceof RangeError;
}
