import type { ContinueRequest, ParkRequest } from "../journal/changes.ts";
import { worstOf } from "../journal/child-result.ts";
import type { Compensation, RunResult } from "../journal/runs.ts";
import { quote } from "../lock/errors.ts";
import { runStep } from "./attempt.ts";
import { encode, encodeInfo } from "./codec.ts";
import type { Context } from "./context.ts";
import {
  type ErrorInfo,
  HistoryEnd,
  isBlocking,
  isTerminal,
  locatedInfo,
  StepFailedError,
  Suspension,
  toErrorInfo,
} from "./errors.ts";
import type { Continuation, RunExecution } from "./execution.ts";
import { toUndo } from "./step.ts";
import type { Undoable } from "./step-effects.ts";

/** The end of an execution: the run is to be finished, parked, or continued in a new history. */
export type ExecutionResult =
  | { readonly finish: Omit<RunResult, "at"> }
  | { readonly park: Omit<ParkRequest, "signalsSeen"> }
  | { readonly continue: Omit<ContinueRequest, "part"> }
  | Blocked;

/** The run cannot be executed by this process, for now. */
export interface Blocked {
  readonly block: unknown;

  /** Whether the execution has written a record. */
  readonly hasProgress: boolean;
}

interface BodyResult {
  /** Encoded. */
  readonly output?: string;
  readonly error?: ErrorInfo;
}

/**
 * Runs the workflow's code and, if it fails, the undos of its steps.
 *
 * Nothing is in progress when the promise settles. Rejects when the run's lease is lost or the journal fails.
 */
export async function executeRun(
  execution: RunExecution,
  context: Context,
): Promise<ExecutionResult> {
  try {
    return await executePhases(execution, context);
  } catch (error) {
    if (!isBlocking(error)) throw error;
    return { block: error, hasProgress: execution.hasWritten };
  }
}

async function executePhases(execution: RunExecution, context: Context): Promise<ExecutionResult> {
  const body = await execution.bodyPhase(() => runBody(execution, context));
  const ended = body instanceof Suspension ? undefined : body;
  const error = ended && (ended.error ?? execution.refusal);
  const mayContinue = body instanceof Suspension ? mayEndHistory(body, execution, context) : !error;
  const continuation = mayContinue ? execution.continuation : undefined;
  if (continuation) context.checkAnswered();
  const refusal = continuation && (await refusalOf(execution, context, continuation));
  if (continuation && !refusal) {
    return { continue: { input: continuation.input, received: context.received } };
  }
  const stop = refusal ?? execution.abandonment;
  if (body instanceof Suspension && !stop) return { park: execution.toPark(body) };
  const failure = execution.recordedFailure ?? execution.cancellation ?? stop ?? error;
  if (!failure) {
    const value = ended?.output ?? encode(undefined);
    return { finish: { status: "completed", value } };
  }
  const compensated = await execution.undoPhase(() => compensate(execution, context, failure));
  if (compensated instanceof Suspension) return { park: execution.toPark(compensated) };
  return failed(execution, failure, compensated);
}

/**
 * Whether the other branches of a suspended body allow `ctx.continueAsNew`. A step between its attempts ends in this
 * history, and so does the handler of an update. What a branch does that is due at once, or that a drain has stopped,
 * would be lost.
 */
function mayEndHistory(suspension: Suspension, execution: RunExecution, context: Context): boolean {
  const isAwaited = context.hasSuspendedHandler && !(suspension instanceof HistoryEnd);
  return suspension.wakeIn > 0 && !execution.effects.hasOpen && !isAwaited;
}

/** Returns why the history cannot end here. */
async function refusalOf(
  execution: RunExecution,
  context: Context,
  { dropUndos }: Continuation,
): Promise<ErrorInfo | undefined> {
  const problem = "ctx.continueAsNew ends a history";
  const { undoable } = await execution.effects.toUndo();
  if (undoable.length > 0 && !dropUndos) {
    const steps = undoable.map(({ step }) => quote(step.key)).join(", ");
    const advice = "pass { dropUndos: true } if they are never to be undone";
    return toErrorInfo(new TypeError(`${problem} with undos of ${steps}; ${advice}`));
  }
  if (!context.hasOpenChildren) return undefined;
  const advice = "await them, or start them with { detached: true }";
  return toErrorInfo(new TypeError(`${problem} with open children; ${advice}`));
}

function failed(
  execution: RunExecution,
  error: ErrorInfo,
  compensated: Compensation,
): ExecutionResult {
  // A cancelled child fails its parent with the same code.
  const isCancelled = error.code === "RUN_CANCELLED" && execution.isCancelled;
  const status = isCancelled ? "cancelled" : "failed";
  return { finish: { status, value: encodeInfo(error), compensated } };
}

async function runBody(execution: RunExecution, context: Context): Promise<BodyResult> {
  const { workflow, claimed } = execution;
  let result: BodyResult;
  try {
    const output = await workflow.run(context, execution.decode(claimed.input));
    await context.end();
    result = { output: await execution.encode("the output", output) };
  } catch (error) {
    const isReported = error instanceof StepFailedError || isTerminal(error, "RUN_CANCELLED");
    if (!isReported) execution.reportError(error);
    result = { error: isReported ? toErrorInfo(error) : locatedInfo(error) };
  }
  await execution.catchUp("the end", { isEnd: true }).catch(() => {});
  return result;
}

/** Cancels the children and, when they have ended, runs the undos, the latest step first. */
async function compensate(
  execution: RunExecution,
  context: Context,
  failure: ErrorInfo,
): Promise<Compensation> {
  const effects = await execution.effects.toUndo();
  const { undoable } = effects;
  const isUnclear = effects.isUnclear || execution.recordedFailure?.effect === "unknown";
  if (undoable.length > 0 || context.hasAttachedChildren) {
    await execution.recordFailure(isUnclear ? { ...failure, effect: "unknown" } : failure);
  }
  const parts: Compensation[] = [await execution.perform(() => context.cancelChildren())];
  for (const one of undoable) parts.push((await undo(execution, one)) ? "yes" : "no");
  return worstOf(isUnclear ? [...parts, "unclear"] : parts);
}

/** Resolves to whether the undo succeeded, now or in an earlier execution. */
async function undo(execution: RunExecution, { step, effect }: Undoable): Promise<boolean> {
  const { history } = execution;
  const done = effect === "done" ? history.record(step.key) : undefined;
  const full = done && (await execution.perform(() => execution.withValue(done)));
  const result = full && execution.decode(full.value);
  const about = { outcome: effect, stepIdempotencyKey: execution.idempotencyKey(step.key) };
  const undoStep = toUndo(step, result, about);
  const recorded = history.match(undoStep);
  const record =
    recorded.final ?? (await execution.perform(() => runStep(execution, undoStep, recorded)));
  return record.outcome === "ok";
}
