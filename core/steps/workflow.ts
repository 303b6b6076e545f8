import type { Compensation, ParkReason, RunResult, RunTurn } from "../journal/runs.ts";
import { checkTurn, DEFAULT_QUEUE } from "../journal/turn-order.ts";
import { checkFunction, checkOneOf, checkText, checkWhole, wrongType } from "../lock/checks.ts";
import { type Duration, toMillis } from "../lock/duration.ts";
import { quote } from "../lock/errors.ts";
import { checkOptionNames, type OptionNames } from "../lock/options.ts";
import type { Deadline, Millis } from "../lock/time.ts";
import { decode, decodeError, hashOf } from "./codec.ts";
import type { Schedule } from "./schedule.ts";
import {
  checkSchema,
  type InputOf,
  isSchema,
  type OutputOf,
  type Schema,
  validate,
} from "./schema.ts";
import { checkSignalName } from "./step-keys.ts";
import type {
  CollectErrors,
  ItemLock,
  Locked,
  LockedScope,
  MapOptions,
  StepOptions,
  StepScope,
  TxScope,
  Undo,
} from "./step-options.ts";

/** The schemas of the payloads of signals, by name. */
export type SignalSchemas = Readonly<Record<string, Schema>>;

type NoSignals = Readonly<Record<never, never>>;

export interface WorkflowDefinition<S extends Schema, Signals extends SignalSchemas = NoSignals> {
  /** 1 to 255 bytes. */
  readonly name: string;

  /** A whole number from 1. A run goes on with the version that it was started with. */
  readonly version: number;
  readonly input: S;

  /**
   * The schemas of the payloads of signals, by name. A sender of another payload gets the error INVALID, and
   * `ctx.waitFor` needs no schema.
   */
  readonly signals?: Signals;

  /** Returns the run's id, 1 to 255 bytes: the same order is placed once. Default: a random id. */
  readonly id?: (input: OutputOf<S>) => string;

  /** Returns the part of the input that must not differ when the id is used again. Default: the whole input. */
  readonly fingerprint?: (input: OutputOf<S>) => unknown;

  /** If it differs: reject with INPUT_CONFLICT (default), or return the outcome of the existing run. */
  readonly onConflict?: "reject" | "return-existing";

  /** The queue of the runs, 1 to 255 bytes: workers choose the queues that they serve. Default "default". */
  readonly queue?: string;

  /** Returns the key of the run's turn, 1 to 255 bytes: due runs of different keys take turns. Default none. */
  readonly key?: (input: OutputOf<S>) => string | undefined;

  /** From -1,000 to 1,000: due runs of a higher priority come first. Default 0. */
  readonly priority?: number | ((input: OutputOf<S>) => number);

  /**
   * The slots that workers and sweeps start, each as one run with the workflow's own `id`, else "NAME:SLOT". The name has at
   * most 230 bytes.
   */
  readonly schedule?: Schedule<InputOf<S>>;

  /**
   * How long the outcome is kept after the end, and the id is in use: a message, request or slot that comes later starts
   * another run. At least as long as a queue keeps its messages, say. Default a day.
   */
  readonly keep?: Duration;

  /** The longest duration of a run, from its start: its next step fails, and the run is undone. Default no limit. */
  readonly timeout?: Duration;

  /** How many processes in a row may crash before they record anything, until the run is blocked. Default 20. */
  readonly maxCrashes?: number;
}

/** A program that is executed once per run, by as many processes as that takes. Made by `workflow`. */
export interface Workflow<Input, Output> {
  readonly name: string;
  readonly version: number;

  /** The queue of runs that are started without another one. */
  readonly queue: string;

  /** Whether the run's id follows from the input. Otherwise each call without an id starts a new run. */
  readonly namesRuns: boolean;

  /** How long an ended run is kept. */
  readonly keep: Millis;

  /** Infinity if there is no limit. */
  readonly timeout: Millis;
  readonly maxCrashes: number;
  readonly signals: SignalSchemas;

  /** @internal */
  readonly input: Schema;

  /** @internal */
  readonly schedule: Schedule<unknown> | undefined;

  /** Validates the input and determines the run's id. Rejects with INVALID. */
  prepare(input: Input, id?: string): Promise<PreparedRun>;

  /** Runs the workflow's code. `input` comes from `prepare`. */
  run(ctx: WorkflowContext, input: unknown): Promise<Output>;
}

interface PreparedRun {
  readonly runId: string;
  readonly input: unknown;
  readonly inputHash: string;
  readonly onConflict: "reject" | "return-existing";
  /** @internal */
  readonly turn: RunTurn;
}

/** A workflow of any input and output. */
export type AnyWorkflow = Workflow<never, unknown>;

const DAY: Millis = 86_400_000;

/** The bytes of the colon and the time in the id of a scheduled run. */
const SLOT_LENGTH = ":2026-01-02T03:04:05.000Z".length;

const DEFINITION = {
  name: true,
  version: true,
  input: true,
  signals: true,
  id: true,
  fingerprint: true,
  onConflict: true,
  queue: true,
  key: true,
  priority: true,
  schedule: true,
  keep: true,
  timeout: true,
  maxCrashes: true,
} satisfies OptionNames<WorkflowDefinition<Schema>>;

/**
 * Makes a workflow.
 *
 * The body runs again from its start in each execution of the run, and completed steps answer from the journal. All
 * other code of the body must do the same each time: the time, random numbers and the outside world belong into steps.
 * Promises that the body awaits besides the steps must settle soon.
 *
 * When the run is parked, the body stays where it is: its `finally` blocks do not run, and `using` disposes nothing.
 * Clean-up belongs into a step as well.
 */
export function workflow<S extends Schema, Output, Signals extends SignalSchemas = NoSignals>(
  definition: WorkflowDefinition<S, Signals>,
  body: (ctx: WorkflowContext<Signals>, input: OutputOf<S>) => Promise<Output>,
): Workflow<InputOf<S>, Output> {
  if (definition === undefined)
    throw wrongType("the definition of a workflow", "an object", definition);
  checkOptionNames("workflow", definition, DEFINITION);
  const { name, version, keep = DAY, timeout, maxCrashes = 20, onConflict = "reject" } = definition;
  const signals: SignalSchemas = definition.signals ?? {};
  for (const [signal, schema] of Object.entries(signals)) {
    checkSignalName(signal);
    checkSchema(`the schema of signal ${quote(signal)}`, schema);
  }
  checkOneOf("onConflict", onConflict, ["reject", "return-existing"]);
  const { queue = DEFAULT_QUEUE, priority = 0 } = definition;
  checkInput(definition);
  for (const member of ["id", "fingerprint", "key"] as const) {
    if (definition[member] !== undefined) checkFunction(member, definition[member]);
  }
  if (typeof body !== "function") {
    throw new TypeError(`workflow ${quote(name)} has no body, such as async (ctx, input) => { … }`);
  }
  checkText("workflow name", name, definition.schedule ? 255 - SLOT_LENGTH : 255);
  checkText("queue", queue, 255);
  if (typeof priority !== "function") checkTurn({ queue, key: undefined, priority });
  if (definition.schedule !== undefined && !definition.schedule?.next) {
    throw wrongType("schedule", 'a Schedule, such as new Schedule("@daily")', definition.schedule);
  }
  checkWhole("version", version, 1, 2 ** 31 - 1);
  checkWhole("maxCrashes", maxCrashes, 1, 1_000);
  return {
    name,
    version,
    queue,
    namesRuns: definition.id !== undefined,
    keep: toMillis("keep", keep),
    timeout: timeout === undefined ? Number.POSITIVE_INFINITY : toMillis("timeout", timeout, 1),
    maxCrashes,
    signals,
    input: definition.input,
    schedule: definition.schedule,
    async prepare(raw, id) {
      const what = `the input of ${name}`;
      const input = await validate(what, definition.input, raw);
      const runId = id ?? definition.id?.(input) ?? crypto.randomUUID();
      checkText("run id", runId, 255);
      const inputHash = hashOf(
        definition.fingerprint ? definition.fingerprint(input) : input,
        what,
      );
      const turn = {
        queue,
        key: definition.key?.(input),
        priority: typeof priority === "function" ? priority(input) : priority,
      };
      checkTurn(turn);
      return { runId, input, inputHash, onConflict, turn };
    },
    run: (ctx, input) => body(ctx as WorkflowContext<Signals>, input as OutputOf<S>),
  };
}

function checkInput({ name, input }: Partial<WorkflowDefinition<Schema>>): void {
  if (isSchema(input)) return;
  const advice = "pass a schema of zod, valibot or arktype, such as `input: z.object({ … })`";
  throw new TypeError(`workflow ${quote(String(name))} has no valid \`input\`; ${advice}`);
}

export interface WorkflowContext<Signals extends SignalSchemas = NoSignals> {
  readonly runId: string;

  /** The deadline of the invocation that executes the run. */
  readonly deadline: Deadline;
  readonly step: StepFunction;

  /** Returns the time of the first execution of this call. */
  now(): Promise<Date>;

  /** Returns a number from 0 to less than 1. */
  random(): Promise<number>;
  uuid(): Promise<string>;

  /** Parks the run for longer spans: the sleep occupies no process. */
  sleep(name: string, span: Duration): Promise<void>;

  /**
   * Returns the payload of the next signal of this name: each call receives one signal. The schema is the one of the
   * workflow's `signals`, or an argument. A signal whose payload does not match is discarded: a record says so, and the
   * call waits on.
   */
  waitFor<N extends keyof Signals & string>(signal: N): Promise<OutputOf<Signals[N]>>;
  waitFor<N extends keyof Signals & string>(
    signal: N,
    options: WaitOptions,
  ): Promise<OutputOf<Signals[N]> | TimedOut>;
  waitFor<S extends Schema>(signal: string, schema: S): Promise<OutputOf<S>>;
  waitFor<S extends Schema>(
    signal: string,
    schema: S,
    options: WaitOptions,
  ): Promise<OutputOf<S> | TimedOut>;

  /**
   * Receives the next update of this name, which the workflow's `signals` declare, calls `handler` with its payload, and
   * answers the sender with the handler's result. An error of the handler is the sender's, and this call's as well.
   *
   * The handler is a part of the body: its effects belong into steps.
   */
  answer<N extends keyof Signals & string, T>(
    update: N,
    handler: (payload: OutputOf<Signals[N]>) => Promise<T>,
  ): Promise<T>;
  answer<N extends keyof Signals & string, T>(
    update: N,
    handler: (payload: OutputOf<Signals[N]>) => Promise<T>,
    options: WaitOptions,
  ): Promise<T | TimedOut>;

  /**
   * Publishes a value for `runtime.query`, under a name of 1 to 100 bytes. The last value of a name counts. Each call
   * is a record.
   */
  publish(name: string, value: unknown): Promise<void>;

  /**
   * Starts another workflow as a run of its own, which any process may execute, and returns its output. When
   * this run fails or is cancelled, the open child is cancelled too, and undone before this run's own steps.
   */
  child<I, O>(name: string, workflow: Workflow<I, O>, input: I, options?: ChildOptions): Promise<O>;

  /**
   * Starts one child per item, for all workers, and returns the outputs in the order of the items. After the first
   * failure no further child starts, and the call fails when the open ones have ended; with `onError: "collect"` all
   * children are started, and their results are returned as `Promise.allSettled` does. Open children are cancelled and
   * undone with this run, as that of `child` is.
   */
  children<I, O>(
    name: string,
    workflow: Workflow<I, O>,
    items: readonly I[],
    options: ChildrenOptions<I> & CollectErrors,
  ): Promise<readonly PromiseSettledResult<O>[]>;
  children<I, O>(
    name: string,
    workflow: Workflow<I, O>,
    items: readonly I[],
    options: ChildrenOptions<I>,
  ): Promise<readonly O[]>;

  /**
   * Ends this history and begins the next one of the same run, with another input: for runs that would go on without an
   * end. Never resolves: nothing after it is executed.
   *
   * Waits for steps that have begun, and for the handlers of updates. Called inside such a handler, it blocks the run with
   * MISUSE. Signals that were not received are carried over, and a parent waits for the end of the last history. Undos are
   * not carried over: the run fails if there are any, and if children are open.
   *
   * Rejects with INVALID for an input that does not match the schema.
   */
  continueAsNew(input: unknown, options?: ContinueOptions): Promise<never>;

  /** The number of calls so far in this history, the same in each replay. A history is limited to 50,000 records. */
  readonly historyLength: number;

  /**
   * Tells whether the run executes the new code of a change: false in runs that had passed this call before the
   * change. The answer stays the same for the whole run.
   */
  patched(id: string): Promise<boolean>;
}

export interface WaitOptions {
  readonly timeout: Duration;
}

export interface TimedOut {
  readonly timedOut: true;
}

export interface ContinueOptions {
  /** Whether the steps of this history are never undone from now on. Default false: there must be none with an undo. */
  readonly dropUndos?: boolean;
}

export interface ChildOptions {
  /** Default: the id of the parent's run, "/" and the name, or a hash of the two if that is too long. */
  readonly id?: string;

  /** Whether the child goes on when this run fails or is cancelled. Default false. */
  readonly detached?: boolean;
}

export interface ChildrenOptions<I> {
  /** Returns a key of 1 to 200 bytes, distinct for each item. The child's id is made of it. */
  readonly keyOf: (item: I) => string;

  /** The most children that are open at a time, 1 to 10,000. Default 100. */
  readonly concurrency?: number;
  readonly onError?: "fail-fast" | "collect";

  /** Whether the children go on when this run fails or is cancelled. Default false. */
  readonly detached?: boolean;
}

/**
 * Executes a step and records its result. `undo` is called if the run fails later.
 *
 * - `step(name, fn)`: at least once. Other systems recognise a repetition by the `idempotencyKey`.
 * - `step(name, { lock }, fn)`: under a lock, with a fence for the resource to check.
 * - `step.tx(name, { lock }, fn)`: in a transaction of the journal's database, with exactly one effect.
 * - `step.map(name, items, { keyOf }, fn)`: one step per item, several of them at a time.
 */
interface StepFunction {
  <T>(name: string, fn: (scope: StepScope) => Promise<T>, undo?: Undo<T | undefined>): Promise<T>;

  <T>(
    name: string,
    options: StepOptions<T> & Locked,
    fn: (scope: LockedScope) => Promise<T>,
    undo?: Undo<T | undefined, LockedScope>,
  ): Promise<T>;

  <T>(
    name: string,
    options: StepOptions<T> & { readonly lock?: never },
    fn: (scope: StepScope) => Promise<T>,
    undo?: Undo<T | undefined>,
  ): Promise<T>;

  /** The function's statements, the step's record and the check of the fences are one transaction. */
  tx<T>(
    name: string,
    options: Omit<StepOptions<T>, "semantics" | "effect"> & Locked,
    fn: (scope: TxScope) => Promise<T>,
    undo?: Undo<T, TxScope>,
  ): Promise<T>;

  readonly map: MapFunction;
}

/**
 * Executes one step per item. The first failure ends the map and no further item begins; with `onError: "collect"`
 * all items are executed and their results are returned as `Promise.allSettled` does.
 */
interface MapFunction {
  <I, T>(
    name: string,
    items: readonly I[],
    options: MapOptions<I, T> & CollectErrors & ItemLock<I>,
    fn: (item: I, scope: LockedScope) => Promise<T>,
    undo?: Undo<T | undefined, LockedScope & ItemScope<I>>,
  ): Promise<readonly PromiseSettledResult<T>[]>;

  <I, T>(
    name: string,
    items: readonly I[],
    options: MapOptions<I, T> & CollectErrors & { readonly lock?: never },
    fn: (item: I, scope: StepScope) => Promise<T>,
    undo?: Undo<T | undefined, StepScope & ItemScope<I>>,
  ): Promise<readonly PromiseSettledResult<T>[]>;

  <I, T>(
    name: string,
    items: readonly I[],
    options: MapOptions<I, T> & ItemLock<I>,
    fn: (item: I, scope: LockedScope) => Promise<T>,
    undo?: Undo<T | undefined, LockedScope & ItemScope<I>>,
  ): Promise<readonly T[]>;

  <I, T>(
    name: string,
    items: readonly I[],
    options: MapOptions<I, T> & { readonly lock?: never },
    fn: (item: I, scope: StepScope) => Promise<T>,
    undo?: Undo<T | undefined, StepScope & ItemScope<I>>,
  ): Promise<readonly T[]>;
}

/** The item whose step is undone. */
interface ItemScope<I> {
  readonly item: I;
}

/** The outcome of one execution of a run. */
export type RunOutcome<Output> = { readonly runId: string } & (
  | { readonly status: "completed"; readonly output: Output }
  | {
      readonly status: "failed";
      readonly error: RunError;
      readonly compensated: Compensation;
    }
  /** The run is due after `wakeIn` milliseconds and when a signal arrives. Infinity: only when a signal arrives. */
  | { readonly status: "suspended"; readonly reason: SuspendReason; readonly wakeIn: Millis }
  /**
   * The run cannot be executed for now: its code does not match its history, or its processes crash. It is tried again
   * after `retryIn` milliseconds.
   */
  | { readonly status: "blocked"; readonly error: RunError; readonly retryIn: Millis }
  /** Another process executes the run. */
  | { readonly status: "busy"; readonly retryIn: Millis }
);

export interface RunError {
  readonly name: string;
  readonly message: string;
  readonly code?: string | undefined;
  readonly data?: unknown;
}

export type SuspendReason = ParkReason;

/** Returns the outcome of an ended run. */
export function toRunOutcome(
  runId: string,
  { status, value, compensated }: Omit<RunResult, "at">,
): RunOutcome<unknown> {
  if (status === "completed") return { runId, status, output: decode(value) };
  return {
    runId,
    status: "failed",
    error: decodeError(value),
    compensated: compensated ?? "unclear",
  };
}
