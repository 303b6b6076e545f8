import { childSignal, decodeChildResult, isCompletedChild } from "../journal/child-result.ts";
import type { RunDetails } from "../journal/queries.ts";
import type { StepRecord } from "../journal/records.ts";
import type { Compensation, RunResult, RunSignal, StartedRun } from "../journal/runs.ts";
import { checkText, checkWhole } from "../lock/checks.ts";
import { quote } from "../lock/errors.ts";
import { checkOptionNames, type OptionNames } from "../lock/options.ts";
import type { Millis } from "../lock/time.ts";
import { encodeError, hashOf } from "./codec.ts";
import {
  type ErrorInfo,
  MisuseError,
  runCancelled,
  StepFailedError,
  Suspension,
} from "./errors.ts";
import type { RunExecution } from "./execution.ts";
import type { StepHistory, WorkflowCommand } from "./history.ts";
import { unescapedId } from "./idempotency.ts";
import { okRecord, startedRecord } from "./records.ts";
import { attemptKey, checkItemKeys, checkItemOptions } from "./step-keys.ts";
import type { ChildOptions, ChildrenOptions, Workflow } from "./workflow.ts";

/** Starts children of a run, without executing them. */
export interface ChildStarter {
  /** Makes the workflow known, so that its runs can be resumed. */
  register(workflow: Workflow<never, unknown>): void;

  /** Resolves to the states of the runs. Rejects with INVALID before any run is started. */
  start<I>(
    workflow: Workflow<I, unknown>,
    children: readonly NewChild<I>[],
    signal: string,
  ): Promise<readonly StartedChild[]>;

  /** Resolves to the state of a run, if it exists. */
  find(runId: string): Promise<RunDetails | undefined>;

  /** Cancels the open children that are not detached. Resolves to their number. */
  cancel(): Promise<{ readonly open: number; readonly compensated: Compensation }>;

  /** Sends the result of an ended child to the run, as the child's end does. */
  tell(signal: string, childId: string, result: ChildResult): Promise<void>;
}

type StartedChild = Exclude<StartedRun, { readonly kind: "conflict" }>;

export interface NewChild<I> {
  readonly id: string;
  readonly input: I;
  readonly detached: boolean;
}

const CHILD_OPTIONS = { id: true, detached: true } satisfies OptionNames<ChildOptions>;
const CHILDREN_OPTIONS = {
  keyOf: true,
  concurrency: true,
  onError: true,
  detached: true,
} satisfies OptionNames<ChildrenOptions<unknown>>;

/** The longest that a parent is parked for the child of another run, whose end does not wake it. */
const CHILD_POLL: Millis = 60_000;

/** How long a run that awaits several children waits for further ends after the first. */
const CHILD_DELAY: Millis = 100;

const ONE_CHILD = { children: { count: 1, within: CHILD_DELAY } };

/**
 * The same in a fan-out, and one more millisecond per child that has ended: a wake reads the results of all of them, so
 * the wakes together take a small part of the time.
 */
const FAN_OUT_DELAY: Millis = 1_000;

type ChildResult = Omit<RunResult, "at">;

/** The children of one execution of a run. Their results arrive as signals. */
export class Children {
  readonly #execution: RunExecution;
  readonly #starter: ChildStarter;
  #ends: ReadonlyMap<string, ReadonlyMap<string, RunSignal>> | undefined;

  /** The calls that the workflow's code has reached, whose children are cancelled with the run. */
  readonly #attached: WorkflowCommand[] = [];

  /** The calls that wait, by the ids of their children. The run itself is no child. */
  readonly #calls: Map<string, string>;

  constructor(execution: RunExecution, starter: ChildStarter) {
    this.#execution = execution;
    this.#starter = starter;
    this.#calls = new Map([[execution.runId, "the run itself"]]);
  }

  /** Whether the run may have children that are cancelled with it. */
  get hasAttached(): boolean {
    return this.#attached.length > 0;
  }

  /**
   * Cancels the open children. Resolves to how their work was undone, and throws a Suspension until all have ended.
   *
   * Their calls are recorded as failed, so that a retry of the run starts other children.
   */
  async cancel(): Promise<Compensation> {
    if (!this.hasAttached) return "yes";
    const { open, compensated } = await this.#starter.cancel();
    if (open > 0) {
      const children = { count: open, within: FAN_OUT_DELAY };
      // The journal tells only the first end of each child: one that was retried may end without another word.
      throw new Suspension("child", CHILD_POLL, { children });
    }
    const execution = this.#execution;
    const value = encodeError(runCancelled(execution.runId));
    for (const command of this.#attached.filter((one) => this.#isOpen(one))) {
      await execution.append({ ...okRecord(command, undefined), outcome: "failed", value });
    }
    return compensated;
  }

  /** Whether calls have open children that are cancelled with the run. */
  get hasOpen(): boolean {
    return this.#attached.some((command) => this.#isOpen(command));
  }

  /** Whether the call has started children, and has no result. */
  #isOpen({ key }: WorkflowCommand): boolean {
    const { history } = this.#execution;
    const isStarted =
      history.record(attemptKey(key, "started", 1)) || this.#endsOf(childSignal(key)).size > 0;
    return isStarted && !history.record(key);
  }

  #match(command: WorkflowCommand, ids: readonly string[], isDetached: boolean): StepHistory {
    const history = this.#execution.match(command);
    for (const id of ids) this.#reserve(id, quote(command.key));
    if (!isDetached) this.#attached.push(command);
    return history;
  }

  /** Throws a MisuseError for an id in use: one call would wait for the end that the other one gets. */
  #reserve(id: string, call: string): void {
    const other = this.#calls.get(id);
    if (other !== undefined) {
      const problem = `child ${call} is to have the id ${quote(id)} of ${other}, which has it`;
      this.#execution.misuse(new MisuseError(`${problem}; use another name or id`));
    }
    this.#calls.set(id, call);
  }

  /** Starts a child once, and returns its output. */
  async child<I, O>(
    key: string,
    workflow: Workflow<I, O>,
    input: I,
    options: ChildOptions,
  ): Promise<O> {
    const execution = this.#execution;
    execution.checked(() => {
      checkOptionNames("child", options, CHILD_OPTIONS);
      if (options.id !== undefined) checkText("run id", options.id, 255);
      this.#starter.register(workflow);
    });
    const { id = this.#idOf(key), detached = false } = options;
    const command: WorkflowCommand = { key, kind: "child" };
    const history = this.#match(command, [id], detached);
    const child = { id, input, detached };
    const answer = execution.answer(command, history, async () => {
      const signal = childSignal(key);
      const sent = this.#endsOf(signal).get(id);
      // A child with an id of its own may have been retried since it failed the run, which is retried now.
      const isOld =
        isFailed(sent) && execution.history.generationOf(key) > 0 && !history.attempt("started", 1);
      const result =
        sent && !isOld
          ? decodeChildResult(sent.payload)
          : await this.#startOne(command, history, { workflow, child, signal });
      return execution.append(recordOf(command, result));
    });
    const record = await answer.finally(() => {
      // Another call may ask for the result of a child with an id of its own, also after a cancellation.
      if (options.id !== undefined) this.#calls.delete(id);
    });
    if (record.outcome === "ok") return execution.decode<O>(record.value);
    throw new StepFailedError(key, execution.decode<ErrorInfo>(record.value));
  }

  /** A child that an older version has started may have an id without escapes. */
  #idOf(key: string): string {
    const execution = this.#execution;
    const { history } = execution;
    const started = history.record(attemptKey(key, "started", 1));
    // A retry of the run may leave the start of the child that has failed.
    const isRepeated = history.generationOf(key) > 0;
    const id = started && !isRepeated ? execution.decode<string>(started.value) : undefined;
    return id ?? execution.idempotencyKey(key);
  }

  /** Returns the result of a child that has ended already. Throws a Suspension otherwise. */
  async #startOne<I>(
    command: WorkflowCommand,
    history: StepHistory,
    { workflow, child, signal }: OneChild<I>,
  ): Promise<ChildResult> {
    const execution = this.#execution;
    const started = history.attempt("started", 1);
    const isStarted = started && execution.decode(started.value) === child.id;
    if (isStarted) throw new Suspension("child", Number.POSITIVE_INFINITY, ONE_CHILD);
    const completed = await this.#completedSince(command.key, command.key);
    if (completed) return completed;
    const [state] = await this.#starter.start(workflow, [child], signal);
    if (state?.kind === "ended") return state.ending;
    const isOurs = this.#isOurs(state, signal);
    // The journal tells a run of the first end of a child alone, and that may have been in an earlier history.
    const isOfPart =
      execution.claimed.part === 1 || child.id === execution.idempotencyKey(command.key);
    const isTold = isOurs && isOfPart && !this.#endsOf(signal).has(child.id);
    if (!isTold) throw new Suspension("child", CHILD_POLL, ONE_CHILD);
    await execution.append(startedRecord(command, child.id));
    throw new Suspension("child", Number.POSITIVE_INFINITY, ONE_CHILD);
  }

  /** Whether the end of a child comes as that signal. */
  #isOurs(state: Pick<StartedChild, "parent"> | undefined, signal: string): boolean {
    const { runId } = this.#execution;
    return state?.parent?.runId === runId && state.parent.signal === signal;
  }

  /**
   * Resolves to the result of a child that had failed before a retry of this run, and that a retry of its own has completed
   * since. Throws a Suspension while it is open again.
   */
  async #completedSince(key: string, childKey: string): Promise<ChildResult | undefined> {
    const execution = this.#execution;
    const ends = this.#endsOf(childSignal(key));
    for (let earlier = execution.history.generationOf(key) - 1; earlier >= 0; earlier -= 1) {
      const id = execution.idempotencyKey(childKey, key, earlier);
      const child = isFailed(ends.get(id)) ? await this.#starter.find(id) : undefined;
      if (child?.ending?.status === "completed") return child.ending;
      if (child && !child.ending) throw new Suspension("child", CHILD_POLL, ONE_CHILD);
    }
    return undefined;
  }

  /** Starts one child per item, some of them at a time, and returns their outputs in the order of the items. */
  async children<I, O>(
    key: string,
    workflow: Workflow<I, O>,
    items: readonly I[],
    options: ChildrenOptions<I>,
  ): Promise<readonly unknown[]> {
    const { keyOf, concurrency = 100, onError = "fail-fast", detached = false } = options ?? {};
    const execution = this.#execution;
    execution.checked(() => {
      checkOptionNames("children", options, CHILDREN_OPTIONS);
      checkWhole("concurrency", concurrency, 1, 10_000);
      checkItemOptions(`children ${key}`, { keyOf, onError });
      this.#starter.register(workflow);
    });
    const itemKeys = items.map((item) => keyOf(item));
    execution.checked(() => checkItemKeys(key, itemKeys));
    const children = items.map((input, i) => {
      const childKey = `${key}[${itemKeys[i]}]`;
      return { key: childKey, id: this.#childId(key, childKey), input, detached };
    });
    const command: WorkflowCommand = { key, kind: "child", argsHash: hashOf(itemKeys) };
    const ids = children.map(({ id }) => id);
    const history = this.#match(command, ids, detached);
    const fanOut = { command, workflow, children, concurrency, isFailFast: onError !== "collect" };
    const record = await execution.answer(command, history, () => this.#fanOut(fanOut, history));
    if (record.outcome === "failed") {
      throw new StepFailedError(key, execution.decode<ErrorInfo>(record.value));
    }
    const ends = this.#endsOf(childSignal(key));
    const results = children.map((child) => settledOf(child.key, ends.get(child.id), execution));
    if (onError === "collect") return results;
    return results.map((result) => (result as PromiseFulfilledResult<unknown>).value);
  }

  /** Children that have completed before a retry of the run keep their ids, and those of an older version theirs. */
  #childId(key: string, childKey: string): string {
    const execution = this.#execution;
    const generation = execution.history.generationOf(key);
    const ends = this.#endsOf(childSignal(key));
    const isKept = (id: string) => ends.has(id) && (generation === 0 || !isFailed(ends.get(id)));
    const unescaped = unescapedId(execution.runId, childKey, execution.claimed.part);
    if (unescaped !== undefined && isKept(unescaped)) return unescaped;
    for (let earlier = 0; earlier < generation; earlier += 1) {
      const id = execution.idempotencyKey(childKey, key, earlier);
      if (isKept(id)) return id;
    }
    return execution.idempotencyKey(childKey, key, generation);
  }

  /** Starts the next children. Returns the final record once all have ended, and throws a Suspension before. */
  async #fanOut<I>(fanOut: FanOut<I>, history: StepHistory): Promise<StepRecord> {
    const { command, children, concurrency, isFailFast } = fanOut;
    const execution = this.#execution;
    const ends = this.#endsOf(childSignal(command.key));
    const failed = children.find(({ id }) => isFailed(ends.get(id)));
    const isOver = failed !== undefined && isFailFast;
    let { batches, started } = startsOf(history, execution);
    const countOpen = () => children.slice(0, started).filter(({ id }) => !ends.has(id)).length;
    let open = countOpen();
    // A child may have ended already: an earlier execution had started it, and crashed before it recorded the start.
    while (!isOver && started < children.length && open < concurrency) {
      const next = children.slice(started, started + concurrency - open);
      await this.#start(fanOut, next);
      batches += 1;
      started += next.length;
      open = countOpen();
      await execution.append(startedRecord(command, started, batches));
    }
    if (open === 0 && isOver) {
      const result = decodeChildResult(ends.get(failed.id)?.payload ?? "");
      return execution.append(recordOf(command, result));
    }
    if (open === 0) return execution.append(okRecord(command, undefined));
    const isLastPacket = isOver || started === children.length;
    const count = isLastPacket ? open : Math.ceil(open / 2);
    const within = FAN_OUT_DELAY + ends.size;
    throw new Suspension("child", Number.POSITIVE_INFINITY, { children: { count, within } });
  }

  async #start<I>(
    { command, workflow }: FanOut<I>,
    batch: readonly ChildOfMany<I>[],
  ): Promise<void> {
    const signal = childSignal(command.key);
    const children: NewChild<I>[] = [];
    for (const child of batch) {
      const completed = await this.#completedSince(command.key, child.key);
      if (completed) await this.#starter.tell(signal, child.id, completed);
      else children.push(child);
    }
    const states = await this.#starter.start(workflow, children, signal);
    let isForeign = false;
    for (const [i, state] of states.entries()) {
      const { id } = children[i] as NewChild<I>;
      isForeign ||= state.kind !== "ended" && !this.#isOurs(state, signal);
      // A purged run with the parent's id had the child.
      const isUntold = state.kind === "ended" && !this.#endsOf(signal).has(id);
      if (isUntold) await this.#starter.tell(signal, id, state.ending);
    }
    // The journal tells another run of the end. The batch is started again to look for it.
    const next = { count: 1, within: FAN_OUT_DELAY };
    if (isForeign) throw new Suspension("child", CHILD_POLL, { children: next });
  }

  /** The signals of children that have ended, by the child's id. */
  #endsOf(name: string): ReadonlyMap<string, RunSignal> {
    this.#ends ??= groupByName(this.#execution.claimed.signals);
    return this.#ends.get(name) ?? new Map();
  }
}

interface OneChild<I> {
  readonly workflow: Workflow<I, unknown>;
  readonly child: NewChild<I>;
  readonly signal: string;
}

interface ChildOfMany<I> extends NewChild<I> {
  readonly key: string;
}

interface FanOut<I> {
  readonly command: WorkflowCommand;
  readonly workflow: Workflow<I, unknown>;
  readonly children: readonly ChildOfMany<I>[];
  readonly concurrency: number;
  readonly isFailFast: boolean;
}

/** Returns the number of batches that were started, and the number of children in them. */
function startsOf(
  history: StepHistory,
  execution: RunExecution,
): { readonly batches: number; readonly started: number } {
  let batches = 0;
  while (history.attempt("started", batches + 1)) batches += 1;
  const last = history.attempt("started", batches);
  return { batches, started: last ? execution.decode<number>(last.value) : 0 };
}

function recordOf(command: WorkflowCommand, { status, value }: ChildResult) {
  const record = okRecord(command, undefined);
  return { ...record, outcome: status === "completed" ? "ok" : "failed", value } as const;
}

function isFailed(end: RunSignal | undefined): boolean {
  return end !== undefined && !isCompletedChild(end.payload);
}

function settledOf(
  key: string,
  end: RunSignal | undefined,
  execution: RunExecution,
): PromiseSettledResult<unknown> {
  const { status, value } = decodeChildResult(end?.payload ?? "");
  if (status === "completed") return { status: "fulfilled", value: execution.decode(value) };
  const error = execution.decode<ErrorInfo>(value);
  return { status: "rejected", reason: new StepFailedError(key, error) };
}

function groupByName(signals: readonly RunSignal[]): Map<string, Map<string, RunSignal>> {
  const groups = new Map<string, Map<string, RunSignal>>();
  for (const signal of signals) {
    const group = groups.get(signal.name) ?? new Map<string, RunSignal>();
    groups.set(signal.name, group.set(signal.dedupeId, signal));
  }
  return groups;
}
