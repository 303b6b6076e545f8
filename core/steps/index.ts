/** Workflows that resume, with a fence in every step. */
export type { Around, CarriedRun, CarriedStep } from "./around.ts";
export type { Duration } from "./duration.ts";
export type { ErrorInfo } from "./errors.ts";
export {
  InputConflictError,
  InvalidValueError,
  NonDeterminismError,
  RetryAfterError,
  RunCancelledError,
  RunPoisonedError,
  RunTimeoutError,
  StepFailedError,
  StepInterruptedError,
  StepTimeoutError,
  TerminalError,
  UnknownRunError,
  UnknownWorkflowError,
} from "./errors.ts";
export type { RunEvent, RunListener } from "./events.ts";
export type { RetryPolicy } from "./retry.ts";
export {
  createRuntime,
  type DriveOptions,
  type Finished,
  type Runtime,
  type RuntimeOptions,
} from "./runtime.ts";
export type { InputOf, OutputOf, Schema } from "./schema.ts";
export {
  type AnyWorkflow,
  type LockedScope,
  type LockRequest,
  type RunOutcome,
  type StepOptions,
  type StepScope,
  type SuspendReason,
  type TimedOut,
  type TxScope,
  type Undo,
  type Workflow,
  type WorkflowContext,
  type WorkflowDefinition,
  workflow,
} from "./workflow.ts";
