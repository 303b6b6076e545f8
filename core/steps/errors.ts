import type { ChildrenWait } from "../journal/changes.ts";
import type { ParkReason } from "../journal/runs.ts";
import { type Duration, toMillis } from "../lock/duration.ts";
import { quote } from "../lock/errors.ts";
import { elapsedSince, instant, type Millis } from "../lock/time.ts";

/** The part of an error that the journal keeps: without the stack, which differs from one replay to the next. */
export interface ErrorInfo {
  readonly name: string;
  readonly message: string;
  readonly code?: string | undefined;
  readonly data?: unknown;

  /** Whether the error said that a retry is of no use, as a TerminalError does: an instruction, not a fault. */
  readonly terminal?: boolean | undefined;

  /** The key of the step that failed. */
  readonly step?: string | undefined;

  /** The name of the file and the line that threw the error, for operators. */
  readonly where?: string | undefined;

  /**
   * `none`: the error said that the failed attempt has changed nothing. `unknown`, of a run: a step without an undo may
   * have had its effect.
   */
  readonly effect?: "none" | "unknown" | undefined;
}

interface Details {
  /** Any value that the journal can keep. */
  readonly data?: unknown;
  readonly cause?: unknown;

  /** `none`: the attempt has certainly changed nothing outside, so that there is nothing to undo. */
  readonly effect?: "none";
}

/**
 * Thrown by a step, ends its retries. Thrown by a workflow, ends the run as failed.
 *
 * The undos of the run's steps are called then. `code` is for programs: "SOLD_OUT".
 */
export class TerminalError extends Error {
  override readonly name: string = "TerminalError";
  readonly code: string;
  readonly data: unknown;
  readonly effect: "none" | undefined;
  readonly retryable = false;

  constructor(code: string, message = code, { data, cause, effect }: Details = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    this.data = data;
    this.effect = effect;
  }
}

export function isTerminal(error: unknown, ...codes: readonly string[]): error is TerminalError {
  return error instanceof TerminalError && codes.includes(error.code);
}

/** Thrown by a step, sets the time of the next attempt. The failed attempt counts. */
export class RetryAfterError extends Error {
  override readonly name = "RetryAfterError";
  readonly after: number;
  readonly effect: "none" | undefined;

  constructor(message: string, after: Duration, { cause, effect }: Omit<Details, "data"> = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.after = toMillis("after", after);
    this.effect = effect;
  }
}

/** The error that a workflow gets from a step that has failed for good: the same one in each replay. */
export class StepFailedError extends TerminalError {
  override readonly name = "StepFailedError";
  readonly step: string;

  /** Whether the step's error was terminal. */
  readonly terminal: boolean;

  constructor(step: string, { code = "STEP_FAILED", message, data, terminal = false }: ErrorInfo) {
    super(code, `step ${quote(step)} failed: ${message}`, { data });
    this.step = step;
    this.terminal = terminal;
  }
}

/** Of an at-most-once step that was started by an execution which ended before its result was recorded. */
export function stepInterrupted(step: string): TerminalError {
  const problem = "was interrupted before its result was recorded, and is not started twice";
  const advice = "check its effect by hand";
  return new TerminalError("STEP_INTERRUPTED", `step ${quote(step)} ${problem}; ${advice}`);
}

/** One attempt took longer than the step's `timeout`. Its code may still be running; its result does not count. */
export class StepTimeoutError extends Error {
  override readonly name = "StepTimeoutError";
  readonly code = "STEP_TIMEOUT";

  constructor(step: string, timeout: number) {
    super(`step ${quote(step)} took longer than ${timeout} ms`);
  }
}

/** The workflow's code does not match the history: the run is blocked until a process with other code resumes it. */
export function nonDeterminism(problem: string): TerminalError {
  const mismatch = "the workflow's code does not match the run's history";
  return new TerminalError("NON_DETERMINISM", `${mismatch}: ${problem}`);
}

/** The workflow's code uses its context in a wrong way: the run is blocked until a process with other code resumes it. */
export class MisuseError extends TerminalError {
  constructor(problem: string) {
    super("MISUSE", problem);
  }
}

/** Returns a MisuseError for the TypeError or RangeError of a wrong argument, and other errors as they are. */
export function toMisuse(error: unknown, prefix = ""): unknown {
  const isWrongArgument = error instanceof TypeError || error instanceof RangeError;
  return isWrongArgument ? new MisuseError(`${prefix}${error.message}`) : error;
}

/**
 * A value in the journal cannot be decoded, such as one of a newer version, or one whose codec or key is missing: the run
 * is blocked. `data` describes a value that needs a codec.
 */
export function unreadableValue(
  cause: unknown,
  data?: { readonly codec: string; readonly bytes: number },
): TerminalError {
  const problem = "a value in the journal cannot be decoded";
  const message = `${problem}: ${toErrorInfo(cause).message}`;
  return new TerminalError("UNREADABLE_VALUE", message, { cause, data });
}

/** The run id was used for another input. The call had no effect. */
export function inputConflict(runId: string): TerminalError {
  const problem = `run ${quote(runId)} was started with another input`;
  return new TerminalError("INPUT_CONFLICT", `${problem}; use another id, or the same input`);
}

/** The dedupe id was used for another payload. The call had no effect. */
export function signalConflict(name: string): TerminalError {
  const problem = `a signal ${quote(name)} with this dedupe id has another payload`;
  return new TerminalError("SIGNAL_CONFLICT", `${problem}; use another id, or the same payload`);
}

/** The most issues of an invalid value that are reported, and the longest of them in characters. */
const MOST_ISSUES = 10;
const LONGEST_ISSUE = 200;

/** The input, a step's result or a signal's payload does not match its schema. */
export function invalidValue(what: string, issues: readonly string[]): TerminalError {
  const data = issues.slice(0, MOST_ISSUES).map((issue) => issue.slice(0, LONGEST_ISSUE));
  const shown = data.slice(0, 5).join("; ");
  return new TerminalError("INVALID", `${what} is not valid: ${shown}`, { data });
}

/** This runtime has no lock store for the step's lock. Another one may have it: the run is blocked. */
export function noLocks(step: string): TerminalError {
  const problem = `step ${step} takes a lock, and the runtime has no lock store`;
  return new TerminalError("NO_LOCKS", `${problem}; pass \`locks\` to createRuntime`);
}

/** The journal of this runtime has no transactions. That of another one may have them: the run is blocked. */
export function noDatabase(step: string): TerminalError {
  const problem = `step.tx ${step} needs a journal in a database with transactions`;
  return new TerminalError("NO_DATABASE", `${problem}; use step, or another journal`);
}

const BLOCKING = ["NON_DETERMINISM", "UNREADABLE_VALUE", "NO_LOCKS", "NO_DATABASE"] as const;

/** Whether a run with this error can go on with other code, or in another process: it is blocked. */
export function isBlocking(error: unknown): boolean {
  return isTerminal(error, ...BLOCKING) || error instanceof MisuseError;
}

/** This runtime does not have the run's workflow, or not in its version. Another one may have it. */
export function unknownWorkflow(workflow: string, version: number): TerminalError {
  const problem = `this runtime does not have workflow ${quote(workflow)} version ${version}`;
  const advice = "pass it to createRuntime in `workflows`";
  return new TerminalError("UNKNOWN_WORKFLOW", `${problem}; ${advice}`);
}

export function unknownRun(runId: string): TerminalError {
  return new TerminalError("UNKNOWN_RUN", `run ${quote(runId)} does not exist`);
}

export function runCancelled(runId: string): TerminalError {
  return new TerminalError("RUN_CANCELLED", `run ${quote(runId)} was cancelled`);
}

/** A singleton is one open run per key, and the cancelled run still has to be undone. */
export function singletonCancelled(runId: string): TerminalError {
  const problem = `the singleton's run ${quote(runId)} was cancelled and has not ended`;
  return new TerminalError("RUN_CANCELLED", `${problem}; start again after its end`);
}

export function runTimeout(runId: string, timeout: Millis): TerminalError {
  return new TerminalError("RUN_TIMEOUT", `run ${quote(runId)} took longer than ${timeout} ms`);
}

/** Too many processes in a row crashed while they executed the run, which is blocked. */
export function runPoisoned(runId: string, crashes: number): TerminalError {
  const problem = `${crashes} processes in a row crashed before they recorded anything`;
  return new TerminalError("RUN_POISONED", `run ${quote(runId)} was given up for now: ${problem}`);
}

interface BusyLock {
  /** Names all locks that the run waits for. */
  readonly lock: string;

  /** Whether one was released since the run found it busy. */
  isReleased(): boolean;
}

/** Thrown inside the engine to park the run. A workflow's code never gets it. */
export class Suspension {
  readonly reason: ParkReason;

  /** The busy locks whose release wakes the run. */
  readonly lock: string | undefined;
  readonly #span: Millis;
  readonly #since = instant();
  readonly #isReleased: () => boolean;

  /** For a branch that awaits children. */
  readonly children: ChildrenWait | undefined;

  constructor(
    reason: ParkReason,
    span: Millis,
    { busy, children }: { readonly busy?: BusyLock; readonly children?: ChildrenWait } = {},
  ) {
    this.reason = reason;
    this.lock = busy?.lock;
    this.#isReleased = busy?.isReleased ?? (() => false);
    this.#span = span;
    this.children = children;
  }

  /** Counted from now: other branches may go on for long before the run is parked. */
  get wakeIn(): Millis {
    return this.#isReleased() ? 0 : Math.max(0, this.#span - elapsedSince(this.#since));
  }
}

/** Thrown inside the engine by a branch that ends the history: it waits for the other branches alone. */
export class HistoryEnd extends Suspension {
  /** Returns how long code may still await something of its own. */
  readonly patience: () => Millis;

  constructor(patience: () => Millis) {
    super("deadline", Number.POSITIVE_INFINITY);
    this.patience = patience;
  }
}

/** Thrown inside the engine when the lease is lost or the journal fails. A workflow's code never gets it. */
export class EngineFailure {
  readonly error: unknown;

  constructor(error: unknown) {
    this.error = error;
  }
}

/** Whether the error stops the execution, and not the workflow's code alone. */
export function isStop(error: unknown): error is Suspension | EngineFailure {
  return error instanceof Suspension || error instanceof EngineFailure;
}

export function failEngine(error: unknown): never {
  throw new EngineFailure(error);
}

/** The longest message of an error that is kept, in characters. */
const LONGEST_MESSAGE = 2_000;

/** The longest name or code of an error that is kept, in characters. */
const LONGEST_NAME = 200;

/** Describes any thrown value, even one whose properties throw. */
export function toErrorInfo(error: unknown): ErrorInfo {
  try {
    return read(error);
  } catch {
    return { name: "Error", message: "the thrown value could not be read" };
  }
}

/** Describes a thrown value, and the line of the user's code that threw it. */
export function locatedInfo(error: unknown): ErrorInfo {
  const where = whereOf(error);
  return { ...toErrorInfo(error), ...(where !== undefined && { where }) };
}

/** Returns the first frame of the stack that is no package's and not of Node itself. Folders are left out. */
function whereOf(error: unknown): string | undefined {
  try {
    const frames = String((error as Error).stack).split("\n");
    const own = frames.find((line) => /^ +at /.test(line) && !/node_modules|node:/.test(line));
    return /([^/\\(\s]{1,100}:\d+):\d+\)?$/.exec(own ?? "")?.[1];
  } catch {
    return undefined;
  }
}

function read(error: unknown): ErrorInfo {
  if (!(error instanceof Error)) return { name: "Error", message: shorten(String(error)) };
  const { name, message, code, data, retryable, terminal, effect } = error as Error &
    Partial<Omit<StepFailedError, "code">> & { readonly code?: unknown };
  const isTerminal = terminal ?? retryable === false;
  return {
    name: shorten(String(name), LONGEST_NAME),
    message: shorten(String(message)),
    ...(isCode(error, code) && { code: shorten(`${code}`, LONGEST_NAME) }),
    ...(data !== undefined && { data }),
    ...(isTerminal && { terminal: true }),
    ...(error instanceof StepFailedError && { step: error.step }),
    ...(effect === "none" && { effect }),
  };
}

/** A number of the error's own counts: that of a DOMException tells less than its name. */
function isCode(error: Error, code: unknown): boolean {
  return typeof code === "string" || (typeof code === "number" && Object.hasOwn(error, "code"));
}

function shorten(text: string, most = LONGEST_MESSAGE): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
