/** Workflows that resume after a crash, with a fence in each locked step, and the records of their runs. */
export type { Journal } from "../journal/journal.ts";
export { StaleRunError } from "../journal/journal.ts";
export type { QueueLimits } from "../journal/limits.ts";
export type { RunDetails, RunInfo } from "../journal/queries.ts";
export type { StepRecord } from "../journal/records.ts";
export type { RunResult, RunSignal, StepInProgress } from "../journal/runs.ts";
export { Codec } from "./codecs.ts";
export type { FinishedRun, Runtime } from "./contract.ts";
export type { EntityHandle } from "./entity/actor.ts";
export {
  type Entity,
  type EntityChange,
  type EntityHandler,
  type EntityScope,
  entity,
} from "./entity/entity.ts";
export { RetryAfterError, StepFailedError, StepTimeoutError, TerminalError } from "./errors.ts";
export type { RunEvent } from "./events.ts";
export type { InterceptedStep, Interceptor } from "./interceptor.ts";
export type { RetryPolicy } from "./retry.ts";
export { createRuntime } from "./runtime.ts";
export { Schedule } from "./schedule.ts";
export type { Schema } from "./schema.ts";
export type { LockedScope, StepScope, TxScope, UndoneStep } from "./step-options.ts";
export {
  type AnyWorkflow,
  type RunError,
  type RunOutcome,
  type TimedOut,
  type Workflow,
  type WorkflowContext,
  workflow,
} from "./workflow.ts";
