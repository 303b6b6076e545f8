import type { EventBridgeEvent } from "aws-lambda";
import { type Duration, toMillis } from "../../core/steps/duration.ts";
import type { Runtime } from "../../core/steps/runtime.ts";
import type { RunOutcome, Workflow } from "../../core/steps/workflow.ts";
import { errorJson, toJson } from "../http/run-json.ts";
import {
  deadlineOf,
  type LambdaContext,
  type ReserveOption,
  toReserve,
} from "../lambda/invocation.ts";
import { from, type Source } from "../lambda/source.ts";

export interface ScheduleOptions<Input> extends ReserveOption {
  /** How long a slot is: events of the same slot are the same run. Default a minute. */
  readonly every?: Duration;

  /** What the workflow is given. It depends on the slot alone, because events of one slot differ in their time. */
  readonly input: (slot: Date) => Input;
}

/** What of the events of an EventBridge rule, and of EventBridge Scheduler, is used. */
export type ScheduledEvent = Pick<EventBridgeEvent<string, unknown>, "time">;

/**
 * A Lambda handler for a schedule: one run per slot, with the id "WORKFLOW:SLOT", however often it fires for it.
 *
 * A run that cannot end in this invocation is gone on with by a sweeper or a worker. Rejects when the run could not
 * be begun, so that Lambda tries again. Answers with how the run went, as JSON has it: dates as text, bigints as digits.
 */
export function scheduleHandler<Input, Output>(
  runtime: Source<Runtime>,
  workflow: Workflow<Input, Output>,
  options: ScheduleOptions<Input>,
): (event: ScheduledEvent, context: LambdaContext) => Promise<RunOutcome<unknown>> {
  const reserve = toReserve(options);
  const every = toMillis("every", options.every ?? 60_000, 1_000);
  return async (event, context) => {
    const deadline = deadlineOf(context, reserve);
    const slot = slotOf(event, every);
    const id = `${workflow.name}:${slot.toISOString()}`;
    const outcome = await (await from(runtime)).drive(workflow, options.input(slot), {
      id,
      deadline,
    });
    const isNotBegun = outcome.status === "busy" && deadline.remaining() <= 0;
    if (isNotBegun) throw new Error(`too little of the invocation was left to begin ${id}`);
    return asJson(outcome);
  };
}

/** Lambda makes JSON of it, and takes one that cannot be made for a failure of the function. */
function asJson(outcome: RunOutcome<unknown>): RunOutcome<unknown> {
  if (outcome.status === "completed") return { ...outcome, output: toJson(outcome.output) };
  if (outcome.status === "failed") return { ...outcome, error: errorJson(outcome.error) };
  return outcome;
}

/** Throws a TypeError for an event that bears no time. */
function slotOf({ time }: ScheduledEvent, every: number): Date {
  const at = Date.parse(time);
  if (Number.isNaN(at)) throw new TypeError("the event has no time: it is none of EventBridge");
  return new Date(Math.floor(at / every) * every);
}
