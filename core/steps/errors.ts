import { quote } from "../lock/errors.ts";
import { type Duration, toMillis } from "./duration.ts";

/** What becomes of an error in the journal. Never its stack: it differs from one replay to the next. */
export interface ErrorInfo {
  readonly name: string;
  readonly message: string;
  readonly code?: string | undefined;
  readonly data?: unknown;

  /** Whether it said itself that trying again is of no use, as a TerminalError does: an instruction, and no fault. */
  readonly terminal?: boolean | undefined;
}

interface Details {
  /** Anything that the journal can keep. */
  readonly data?: unknown;
  readonly cause?: unknown;
}

/**
 * Thrown by a step, it says that trying again is of no use; thrown by a workflow, it ends the run as failed.
 *
 * What the run has done is undone then. `code` is for programs: "SOLD_OUT".
 */
export class TerminalError extends Error {
  readonly code: string;
  readonly data: unknown;
  readonly retryable = false;

  constructor(code: string, message = code, { data, cause }: Details = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.code = code;
    this.data = data;
  }
}

/** Thrown by a step, it says when to try again. It counts as an attempt. */
export class RetryAfterError extends Error {
  readonly after: number;

  constructor(message: string, after: Duration, { cause }: Pick<Details, "cause"> = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.after = toMillis("after", after);
  }
}

/** What a workflow sees of a step that has failed for good: the same when it is replayed. */
export class StepFailedError extends TerminalError {
  readonly step: string;

  /** Of what the step has thrown. */
  readonly terminal: boolean;

  constructor(step: string, { code = "STEP_FAILED", message, data, terminal = false }: ErrorInfo) {
    super(code, `step ${quote(step)} failed: ${message}`, { data });
    this.step = step;
    this.terminal = terminal;
  }
}

/** An at-most-once step was begun, and nobody knows how far it got. */
export class StepInterruptedError extends TerminalError {
  constructor(step: string) {
    const problem = "was begun by somebody who is gone, and is not begun twice";
    super("STEP_INTERRUPTED", `step ${quote(step)} ${problem}`);
  }
}

/** One attempt took longer than the step's `timeout`. Its code may still be running; its result does not count. */
export class StepTimeoutError extends Error {
  readonly code = "STEP_TIMEOUT";

  constructor(step: string, timeout: number) {
    super(`step ${quote(step)} took longer than ${timeout} ms`);
    this.name = new.target.name;
  }
}

/** The workflow's code does not do what it did before: the run cannot go on, and ends as failed. */
export class NonDeterminismError extends TerminalError {
  constructor(problem: string) {
    super("NON_DETERMINISM", `the workflow has changed under a run: ${problem}`);
  }
}

/** The run id was used before, for another input. Nothing has happened. */
export class InputConflictError extends TerminalError {
  constructor(runId: string) {
    super("INPUT_CONFLICT", `run ${quote(runId)} was begun with another input`);
  }
}

/** The most of what is wrong with a value that is told, and of how many characters each: a long list has many faults. */
const MOST_ISSUES = 10;
const LONGEST_ISSUE = 200;

/** The input, or a step's output or a signal's payload, is not what the schema wants. */
export class InvalidValueError extends TerminalError {
  constructor(what: string, issues: readonly string[]) {
    const shown = issues.slice(0, MOST_ISSUES).map((issue) => issue.slice(0, LONGEST_ISSUE));
    super("INVALID", `${what} is not valid: ${shown.slice(0, 5).join("; ")}`, { data: shown });
  }
}

/** The run belongs to a workflow, or to a version of it, that is not known here. Others may know it. */
export class UnknownWorkflowError extends TerminalError {
  constructor(workflow: string, version: number) {
    super("UNKNOWN_WORKFLOW", `workflow ${quote(workflow)} version ${version} is not known here`);
  }
}

export class UnknownRunError extends TerminalError {
  constructor(runId: string) {
    super("UNKNOWN_RUN", `there is no run ${quote(runId)}`);
  }
}

export class RunCancelledError extends TerminalError {
  constructor(runId: string) {
    super("RUN_CANCELLED", `run ${quote(runId)} was cancelled`);
  }
}

export class RunTimeoutError extends TerminalError {
  constructor(runId: string, timeout: number) {
    super("RUN_TIMEOUT", `run ${quote(runId)} took longer than ${timeout} ms`);
  }
}

/** Process after process was lost over this run. */
export class RunPoisonedError extends TerminalError {
  constructor(runId: string, crashes: number) {
    super("RUN_POISONED", `run ${quote(runId)} was left unfinished ${crashes} times in a row`);
  }
}

/** The longest message that is kept of an error, in characters. */
const LONGEST_MESSAGE = 2_000;

/** The longest name or code that is kept of an error, in characters. */
const LONGEST_NAME = 200;

/** Whatever was thrown: even what cannot be read is an error of which something can be said. */
export function toErrorInfo(error: unknown): ErrorInfo {
  try {
    return read(error);
  } catch {
    return { name: "Error", message: "something was thrown that cannot be read" };
  }
}

function read(error: unknown): ErrorInfo {
  if (!(error instanceof Error)) return { name: "Error", message: shorten(String(error)) };
  const { name, message, code, data, retryable, terminal } = error as Error &
    Partial<StepFailedError>;
  const isTerminal = terminal ?? retryable === false;
  return {
    name: shorten(String(name), LONGEST_NAME),
    message: shorten(String(message)),
    ...(typeof code === "string" && { code: shorten(code, LONGEST_NAME) }),
    ...(data !== undefined && { data }),
    ...(isTerminal && { terminal: true }),
  };
}

function shorten(text: string, most = LONGEST_MESSAGE): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
