import type { EventBridgeEvent } from "aws-lambda";
import { checkFunction } from "../../../core/lock/checks.ts";
import { type Duration, toMillis } from "../../../core/lock/duration.ts";
import { listener } from "../../../core/lock/listener.ts";
import { checkOptionNames, type OptionNames } from "../../../core/lock/options.ts";
import type { Runtime } from "../../../core/steps/contract.ts";
import { checkWorkflow } from "../../../core/steps/run-executor.ts";
import type { RunOutcome, Workflow } from "../../../core/steps/workflow.ts";
import {
  deadlineOf,
  LAST_WAIT,
  type LambdaContext,
  type LockWaitOption,
  lockWaitOf,
  type ReserveOption,
  reserveOf,
  withinInvocation,
} from "../../invocation/invocation.ts";
import { type Provider, resolve } from "../../invocation/provider.ts";
import { errorJson, toJson } from "../../json/run-json.ts";
import { logFailedRun } from "../../telemetry/log-line.ts";

export interface ScheduleHandlerOptions<Input> extends ReserveOption, LockWaitOption {
  /** The length of a slot. All events of a slot are one run. Default 1 minute. */
  readonly every?: Duration;

  /** Returns the workflow's input. The input depends on the slot alone: events of one slot differ in their time. */
  readonly input: (slot: Date) => Input;

  /**
   * Called with the outcome of each run. Errors of the listener are ignored. Default: a run that has failed or is blocked is
   * written to stderr as one line of JSON, unless it has failed with an answer: a TerminalError of its workflow, a refusal
   * of the stock, a cancellation.
   */
  readonly onOutcome?: (outcome: RunOutcome<unknown>) => void;
}

const OPTIONS = {
  every: true,
  input: true,
  reserve: true,
  lockWait: true,
  onOutcome: true,
} satisfies OptionNames<ScheduleHandlerOptions<unknown>>;

/** The part of the events of EventBridge rules and EventBridge Scheduler that the handler uses. */
export type ScheduledEvent = Pick<EventBridgeEvent<string, unknown>, "time">;

/**
 * Returns a Lambda handler for a schedule: one run per slot, however many events the slot has. The run's id is the one of
 * the workflow's own `id`, else "WORKFLOW:SLOT".
 *
 * A sweep or a worker resumes a run that cannot end in this invocation. Rejects when the run did not start, so that
 * Lambda retries. Resolves to the run's outcome as JSON: dates as text, bigints as digits.
 */
export function scheduleHandler<Input, Output>(
  runtime: Provider<Runtime>,
  workflow: Workflow<Input, Output>,
  options: ScheduleHandlerOptions<Input>,
): (event: ScheduledEvent, context: LambdaContext) => Promise<RunOutcome<unknown>> {
  checkFunction("the option input of scheduleHandler", options?.input);
  checkOptionNames("scheduleHandler", options, OPTIONS);
  checkWorkflow(workflow);
  const reserve = reserveOf(options);
  const lockWait = lockWaitOf(options);
  const every = toMillis("every", options.every ?? 60_000, 1_000);
  const onOutcome = listener(options.onOutcome ?? logFailedRun);
  return async (event, context) => {
    const deadline = deadlineOf(context, reserve);
    const slot = slotOf(event, every);
    const id = workflow.namesRuns ? undefined : `${workflow.name}:${slot.toISOString()}`;
    const executeSlot = async () =>
      (await resolve(runtime)).execute(workflow, options.input(slot), { id, deadline, lockWait });
    const outcome = await withinInvocation(deadline, reserve * LAST_WAIT, executeSlot);
    const isUnstarted = outcome.status === "busy" && deadline.remaining() <= 0;
    if (isUnstarted) throw new Error(`too little time was left to start run ${outcome.runId}`);
    onOutcome(outcome);
    return asJson(outcome);
  };
}

/** Lambda serialises the result, and counts a result that is not JSON as a failure of the function. */
function asJson(outcome: RunOutcome<unknown>): RunOutcome<unknown> {
  if (outcome.status === "completed") return { ...outcome, output: toJson(outcome.output) };
  if ("error" in outcome) return { ...outcome, error: errorJson(outcome.error) };
  return outcome;
}

/** Throws a TypeError for an event without a time. */
function slotOf(event: ScheduledEvent | null | undefined, every: number): Date {
  const at = Date.parse(event?.time ?? "");
  if (Number.isNaN(at)) throw new TypeError("the event has no time: it is not from EventBridge");
  return new Date(Math.floor(at / every) * every);
}
