import { parentStepOf } from "../journal/child-result.ts";
import type { NewRecord, StepRecord } from "../journal/records.ts";
import type { Compensation, RunSignal } from "../journal/runs.ts";
import { race } from "../lock/abort.ts";
import { checkFunction, checkText, checkWhole } from "../lock/checks.ts";
import { type Duration, toMillis } from "../lock/duration.ts";
import { quote } from "../lock/errors.ts";
import { checkOptionNames, type OptionNames } from "../lock/options.ts";
import type { Deadline, Millis } from "../lock/time.ts";
import { answerKey, publishedPrefix, type UpdateAnswer } from "./answers.ts";
import { runStep } from "./attempt.ts";
import { BodyCalls, HandledUpdate } from "./calls.ts";
import { Children, type ChildStarter } from "./children.ts";
import { decode, encodeError, encodeResult } from "./codec.ts";
import { isSealed } from "./envelope.ts";
import {
  type ErrorInfo,
  invalidValue,
  MisuseError,
  StepFailedError,
  Suspension,
  TerminalError,
  toErrorInfo,
} from "./errors.ts";
import type { RunExecution } from "./execution.ts";
import type { WorkflowCommand } from "./history.ts";
import { okRecord, startedRecord } from "./records.ts";
import { OWN_PATIENCE } from "./replay-gate.ts";
import { isSchema, type Schema, validate } from "./schema.ts";
import { type AnyStepOptions, MAP_OPTIONS, type Step, type StepFunctions, toStep } from "./step.ts";
import {
  attemptKey,
  checkItemKeys,
  checkItemOptions,
  checkItems,
  checkSignalName,
  checkStepName,
} from "./step-keys.ts";
import type { ItemLock, MapOptions, TxScope, Undo } from "./step-options.ts";
import type {
  ChildOptions,
  ChildrenOptions,
  ContinueOptions,
  WaitOptions,
  Workflow,
  WorkflowContext,
} from "./workflow.ts";

type Arguments = readonly unknown[];

type AnyMapOptions = MapOptions<unknown, unknown> & Partial<ItemLock<unknown>>;

const CONTINUE_OPTIONS = { dropUndos: true } satisfies OptionNames<ContinueOptions>;
const WAIT_OPTIONS = { timeout: true } satisfies OptionNames<WaitOptions>;

type AnyItemFunction = (item: unknown, scope: TxScope) => Promise<unknown>;

type MapArguments = readonly [
  name: string,
  items: readonly unknown[],
  options: AnyMapOptions,
  fn: AnyItemFunction,
  undo?: Undo<unknown, TxScope & { readonly item: unknown }>,
];

/** How long the handler of an update may await something of its own when the history is to end. */
const HANDLER_PATIENCE: Millis = 1_000;

/** The context of a workflow's code: each call answers from the journal, or does its work and records the result. */
export class Context implements WorkflowContext {
  readonly #execution: RunExecution;
  readonly #children: Children;
  readonly #calls: BodyCalls;
  readonly step: WorkflowContext["step"];

  /** The signals that earlier calls have received, by name and dedupe id. */
  readonly #received = new Set<string>();

  /** The updates whose handlers have not ended. */
  readonly #unanswered = new Set<HandledUpdate>();
  readonly #patches = new Map<string, Promise<boolean>>();

  constructor(execution: RunExecution, starter: ChildStarter) {
    this.#execution = execution;
    this.#children = new Children(execution, starter);
    const calls = new BodyCalls(execution);
    this.#calls = calls;
    const step = (name: string, ...rest: Arguments) =>
      calls.begin("step", name, () => calls.hold(this.#step("step", name, rest)));
    this.step = Object.assign(step, {
      tx: (name: string, ...rest: Arguments) =>
        calls.begin("step.tx", name, () => calls.hold(this.#step("tx", name, rest))),
      map: (...args: MapArguments) =>
        calls.begin("step.map", args[0], () => calls.hold(this.#map(...args))),
    }) as unknown as WorkflowContext["step"];
  }

  get runId(): string {
    return this.#execution.runId;
  }

  get historyLength(): number {
    return this.#execution.history.length;
  }

  continueAsNew(input: unknown, options: ContinueOptions = {}): Promise<never> {
    const execution = this.#execution;
    return this.#calls.begin("continueAsNew", this.runId, async () => {
      execution.checked(() => checkOptionNames("continueAsNew", options, CONTINUE_OPTIONS));
      this.#checkOutsideHandlers();
      const { dropUndos = false } = options;
      const encoded = await execution.encodeInput(input);
      return execution.continueAsNew({ input: encoded, dropUndos }, () => this.#patience());
    });
  }

  /** How long the body may await something of its own when the history is to end. */
  #patience(): Millis {
    const isBusy = [...this.#unanswered].some(({ isInCall = false }) => !isInCall);
    return isBusy ? HANDLER_PATIENCE : OWN_PATIENCE;
  }

  /** The next history would handle the update again, and repeat the steps of its handler. */
  #checkOutsideHandlers(): void {
    const update = HandledUpdate.current;
    if (!update || !this.#unanswered.has(update)) return;
    const problem = `ctx.continueAsNew is called in the handler of update ${quote(update.name)}`;
    const advice = "return from the handler, and call it after ctx.answer";
    this.#execution.misuse(new MisuseError(`${problem}; ${advice}`));
  }

  /** Throws a MisuseError if the history is to end without the answer to an update. */
  checkAnswered(): void {
    const [update] = this.#unanswered.values();
    if (!update) return;
    const problem = `update ${quote(update.name)} would have no answer when ctx.continueAsNew ends the history`;
    const advice = "let no handler wait for the next history, and do longer work in steps";
    throw new MisuseError(`${problem}; await ctx.answer, ${advice}`);
  }

  /** Whether the handler of an update waits for a call of its own. */
  get hasSuspendedHandler(): boolean {
    return [...this.#unanswered].some(({ isInCall = true }) => isInCall);
  }

  get deadline(): Deadline {
    return this.#execution.deadline;
  }

  now(): Promise<Date> {
    return this.#calls.beginValue("now", () => this.#value("~now", () => new Date()));
  }

  random(): Promise<number> {
    return this.#calls.beginValue("random", () => this.#value("~random", Math.random));
  }

  uuid(): Promise<string> {
    return this.#calls.beginValue("uuid", () => this.#value("~uuid", () => crypto.randomUUID()));
  }

  patched(id: string): Promise<boolean> {
    return this.#calls.beginValue("patched", () => {
      const known = this.#patches.get(id) ?? this.#patched(id);
      this.#patches.set(id, known);
      return known;
    });
  }

  async #patched(id: string): Promise<boolean> {
    this.#execution.checked(() => checkText("patch id", id, 200));
    const key = `~patched/${id}`;
    const { history } = this.#execution;
    const isKnown = history.record(key) ?? history.earlierResult({ key, kind: "value" });
    // A retried run that has yet to reach what it had done may have been behind this call.
    const isOld = !isKnown && (history.isReplaying || history.unreached.size > 0);
    return isOld ? false : this.#value(key, () => true, false);
  }

  sleep(name: string, span: Duration): Promise<void> {
    return this.#calls.begin("sleep", name, () => this.#sleep(name, span));
  }

  async #sleep(name: string, span: Duration): Promise<void> {
    const execution = this.#execution;
    const millis = execution.checked(() => toMillis("span", span));
    const key = this.#nameOf(name);
    const command: WorkflowCommand = { key, kind: "sleep" };
    const history = execution.match(command);
    await execution.answer(command, history, async () => {
      const started =
        history.attempt("started", 1) ?? (await execution.append(startedRecord(command, millis)));
      await execution.pause(
        "sleep",
        execution.decode<number>(started.value) - execution.since(started.at),
      );
      return execution.append(okRecord(command, millis));
    });
  }

  publish(name: string, value: unknown): Promise<void> {
    return this.#calls.begin("publish", name, async () => {
      const key = this.#execution.checked(() => publishedPrefix(name));
      await this.#execution.encode(`the published ${name}`, value);
      await this.#value(key, () => value);
    });
  }

  answer(update: string, handler: (payload: never) => Promise<unknown>, options?: WaitOptions) {
    const work = () => this.#answer(update, handler, options);
    return this.#calls.begin("answer", update, work) as Promise<never>;
  }

  async #answer(
    update: string,
    handler: (payload: never) => Promise<unknown>,
    options: WaitOptions | undefined,
  ): Promise<unknown> {
    this.#execution.checked(() => {
      checkFunction("the handler of the update", handler);
      checkOptionNames("answer", options, WAIT_OPTIONS);
    });
    const refuse = (discarded: StepRecord) => this.#refuse(update, discarded);
    const { dedupeId, value } = await this.#receiveNext(update, [options], refuse);
    if (dedupeId === undefined) return value;
    const handled = new HandledUpdate(update);
    this.#unanswered.add(handled);
    const work = async () => {
      const output = await handled.run(async () => handler(value as never));
      await this.#execution.encode(`the answer to ${update}`, output);
      return output;
    };
    const [settled] = await Promise.allSettled([work()]);
    const answer = settled.status === "fulfilled" ? { output: settled.value } : failure(settled);
    await this.#value<UpdateAnswer>(answerKey(update, dedupeId), () => answer, false);
    this.#unanswered.delete(handled);
    if (settled.status === "rejected") throw settled.reason;
    return settled.value;
  }

  /** Answers the sender of a discarded update, unless an earlier execution has done so. */
  async #refuse(update: string, { value }: StepRecord): Promise<void> {
    const execution = this.#execution;
    const { dedupeId, error } = execution.decode<DiscardedSignal>(value);
    const key = answerKey(update, dedupeId);
    if (execution.history.record(key)) return;
    await execution.append(okRecord({ key, kind: "refusal" }, { error } satisfies UpdateAnswer));
  }

  waitFor(signal: string, ...rest: readonly (Schema | WaitOptions | undefined)[]): Promise<never> {
    const wait = () => this.#waitFor(signal, rest);
    return this.#calls.begin("waitFor", signal, wait) as Promise<never>;
  }

  async #waitFor(
    signal: string,
    rest: readonly (Schema | WaitOptions | undefined)[],
  ): Promise<unknown> {
    return (await this.#receiveNext(signal, rest)).value;
  }

  async #receiveNext(
    signal: string,
    rest: readonly (Schema | WaitOptions | undefined)[],
    onDiscarded = async (_: StepRecord) => {},
  ): Promise<ReceivedSignal> {
    const execution = this.#execution;
    const { schema, timeout } = execution.checked(() => this.#checkedWait(signal, rest));
    const key = execution.history.keyOf(`~signal/${signal}`);
    const command: WorkflowCommand = { key, kind: "signal" };
    const history = execution.match(command);
    this.#markReceived(signal, execution.history.earlierResult(command)?.record);
    for (let number = 1; number <= history.failures; number += 1) {
      this.#markReceived(signal, history.attempt("retry", number));
    }
    const record = await execution.answer(command, history, async () => {
      let discarded = history.failures;
      for (let number = 1; number <= discarded; number += 1) {
        await onDiscarded(history.attempt("retry", number) as StepRecord);
      }
      for (let next = this.#receive(signal); next; next = this.#receive(signal)) {
        const { dedupeId } = next;
        const received = await this.#record(command, next, schema, discarded + 1).catch((error) => {
          this.#received.delete(signalId(signal, dedupeId));
          throw error;
        });
        const written = await execution.append(received);
        if (written.outcome === "ok") return written;
        await onDiscarded(written);
        discarded += 1;
      }
      if (timeout === undefined) throw new Suspension("signal", Number.POSITIVE_INFINITY);
      const started =
        history.attempt("started", 1) ?? (await execution.append(startedRecord(command, timeout)));
      const left = execution.decode<number>(started.value) - execution.since(started.at);
      if (left > 0 && !execution.skipsPauses) throw new Suspension("signal", left);
      return execution.append(okRecord(command, { value: { timedOut: true } }));
    });
    this.#markReceived(signal, record);
    return this.#resultOf<ReceivedSignal>(key, record);
  }

  /**
   * Returns the record of a signal. A signal whose payload is not valid is discarded: the `number`th one of its wait.
   * Rejects with the error of a schema that throws.
   */
  async #record(
    command: WorkflowCommand,
    { dedupeId, payload, name }: RunSignal,
    schema: Schema,
    number: number,
  ): Promise<NewRecord> {
    const what = `the payload of signal ${name}`;
    // Nobody discards what a process with another codec can read.
    if (isSealed(payload)) this.#execution.decode(payload);
    const { attemptSignal } = this.#execution;
    const receive = async () => {
      const value = await validate(what, schema, decodePayload(what, payload));
      return encodeResult(what, { dedupeId, value }, this.#execution);
    };
    try {
      const text = await race(receive(), attemptSignal);
      return { ...okRecord(command, undefined), value: text };
    } catch (error) {
      if (!(error instanceof TerminalError) || attemptSignal.aborted) throw error;
      const info = decode<ErrorInfo>(encodeError(error));
      const discarded: DiscardedSignal = { dedupeId, error: info, retryIn: 0 };
      return {
        ...okRecord(command, discarded),
        key: attemptKey(command.key, "retry", number),
        outcome: "retry",
        attempt: number,
      };
    }
  }

  #checkedWait(
    signal: string,
    rest: readonly (Schema | WaitOptions | undefined)[],
  ): { readonly schema: Schema; readonly timeout: Millis | undefined } {
    checkSignalName(signal);
    const [schema, options] = this.#schemaOf(signal, rest);
    checkOptionNames("waitFor", options, WAIT_OPTIONS);
    return { schema, timeout: options && toMillis("timeout", options.timeout) };
  }

  /** Returns the schema of a signal's payload, and the options of the wait. */
  #schemaOf(
    signal: string,
    [first, second]: readonly (Schema | WaitOptions | undefined)[],
  ): readonly [Schema, WaitOptions | undefined] {
    if (isSchema(first)) return [first, second as WaitOptions | undefined];
    const { signals } = this.#execution.workflow;
    const schema = Object.hasOwn(signals, signal) ? signals[signal] : undefined;
    if (schema) return [schema, first];
    const advice = "pass a schema, or declare it in the workflow's `signals`";
    throw new TypeError(`signal ${quote(signal)} has no schema; ${advice}`);
  }

  /** Keeps later calls from receiving the signal of a record. */
  #markReceived(signal: string, record: StepRecord | undefined): void {
    const { dedupeId } = this.#execution.decode<Partial<ReceivedSignal>>(record?.value) ?? {};
    if (dedupeId !== undefined) this.#received.add(signalId(signal, dedupeId));
  }

  /** Returns the next signal of this name; synchronously, so that no other call receives the same one. */
  #receive(name: string): RunSignal | undefined {
    const { signals } = this.#execution.claimed;
    const next = signals.find(
      (signal) => signal.name === name && !this.#received.has(signalId(name, signal.dedupeId)),
    );
    if (next) this.#received.add(signalId(name, next.dedupeId));
    return next;
  }

  child<I, O>(
    name: string,
    workflow: Workflow<I, O>,
    input: I,
    options: ChildOptions = {},
  ): Promise<O> {
    return this.#calls.begin("child", name, async () => {
      using _ = this.#calls.reserve(name);
      return await this.#children.child(this.#nameOf(name), workflow, input, options);
    });
  }

  children<I, O>(
    name: string,
    workflow: Workflow<I, O>,
    items: readonly I[],
    options: ChildrenOptions<I>,
  ): Promise<readonly never[]> {
    return this.#calls.begin("children", name, async () => {
      this.#execution.checked(() => checkItems(`children ${name}`, items));
      const given = [...items];
      using _ = this.#calls.reserve(name);
      const results = this.#children.children(this.#nameOf(name), workflow, given, options);
      return (await results) as readonly never[];
    });
  }

  /** Whether the run may have children that are cancelled with it. */
  get hasAttachedChildren(): boolean {
    return this.#children.hasAttached;
  }

  /** Whether the run has open children that are cancelled with it. */
  get hasOpenChildren(): boolean {
    return this.#children.hasOpen;
  }

  /** The numbers of the signals that calls have received, and of the ends of children. */
  get received(): readonly number[] {
    const isReceived = ({ name, dedupeId }: RunSignal) =>
      parentStepOf(name) !== undefined || this.#received.has(signalId(name, dedupeId));
    return this.#execution.claimed.signals.filter(isReceived).map(({ number }) => number);
  }

  /** Cancels the children of a failed run. Throws a Suspension until all have ended. */
  cancelChildren(): Promise<Compensation> {
    return this.#children.cancel();
  }

  /** Ends the body. Resolves when all of its steps have ended. Rejects with a MisuseError if a call was not awaited. */
  end(): Promise<void> {
    return this.#calls.end();
  }

  #nameOf(name: string): string {
    this.#execution.checked(() => checkStepName("step name", name));
    return this.#execution.history.keyOf(name);
  }

  async #step(kind: "step" | "tx", name: string, rest: Arguments): Promise<unknown> {
    const hasOptions = typeof rest[0] === "object" && rest[0] !== null;
    const [options, fn, undo] = hasOptions ? rest : [{}, ...rest];
    const { key: ownKey } = options as AnyStepOptions;
    if (ownKey !== undefined) this.#execution.checked(() => checkStepName("key", ownKey));
    using _ = ownKey === undefined ? this.#calls.reserve(name) : undefined;
    const key = ownKey ?? this.#nameOf(name);
    const functions = { fn, undo } as StepFunctions;
    return await this.#run({ name, key }, kind, options as AnyStepOptions, functions);
  }

  async #run(
    names: Pick<Step, "name" | "key">,
    kind: "step" | "tx",
    options: AnyStepOptions,
    functions: StepFunctions,
  ): Promise<unknown> {
    const execution = this.#execution;
    const step = execution.checked(() => toStep(names, kind, options, functions));
    const history = execution.match(step);
    execution.effects.register(step);
    const record = await execution.answer(step, history, () => runStep(execution, step, history));
    return this.#resultOf(step.key, record);
  }

  async #map(...[name, given, options, fn, undo]: MapArguments): Promise<readonly unknown[]> {
    const { keyOf, concurrency = 8, onError = "fail-fast", lock, ...rest } = options ?? {};
    const execution = this.#execution;
    const call = `step.map ${name}`;
    execution.checked(() => {
      checkItems(call, given);
      checkWhole("concurrency", concurrency, 1, 1_000);
      checkItemOptions(call, { keyOf, onError });
      checkOptionNames("step.map", options, MAP_OPTIONS);
      checkFunction(`${call}: its function`, fn);
      if (undo !== undefined) checkFunction(`${call}: its undo`, undo);
      if (lock !== undefined) checkFunction(`${call}: lock`, lock);
    });
    const items = [...given];
    const itemKeys = items.map((item) => keyOf(item));
    execution.checked(() => checkItemKeys(name, itemKeys));
    using _ = this.#calls.reserve(name);
    const base = this.#nameOf(name);
    const keys = itemKeys.map((key) => `${base}[${key}]`);
    const results: PromiseSettledResult<unknown>[] = [];
    let next = 0;
    let hasFailed = false;
    const runItem = async (i: number, key: string) => {
      const item = items[i];
      const functions: StepFunctions = {
        fn: (scope) => fn(item, scope),
        undo: undo && ((result, scope) => undo(result, { ...scope, item })),
      };
      const run = async () => {
        const itemOptions = lock ? { ...rest, lock: lock(item) } : rest;
        return await this.#run({ name, key }, "step", itemOptions, functions);
      };
      results[i] = await settled(run());
      if (results[i]?.status === "rejected") hasFailed = true;
    };
    const work = async () => {
      const { history } = execution;
      for (let i = next++; i < items.length; i = next++) {
        const key = keys[i] as string;
        // Replays the items that have begun, so that their undos are registered.
        const isSkipped = hasFailed && onError === "fail-fast" && !history.hasRecordOf(key);
        if (!isSkipped) await runItem(i, key);
      }
    };
    await Promise.all(Array.from({ length: Math.min(concurrency, items.length) }, work));
    if (onError === "collect") return results;
    const failure = results.find((result) => result?.status === "rejected");
    if (failure) throw failure.reason;
    return results.map((result) => (result as PromiseFulfilledResult<unknown>).value);
  }

  #resultOf<T>(key: string, record: StepRecord): T {
    if (record.outcome === "ok") return this.#execution.decode<T>(record.value);
    throw new StepFailedError(key, this.#execution.decode<ErrorInfo>(record.value));
  }

  /** Records a value that differs from one execution to the next. */
  async #value<T>(name: string, make: () => T, counted = true): Promise<T> {
    const execution = this.#execution;
    const key = counted ? execution.history.keyOf(name) : name;
    const command: WorkflowCommand = { key, kind: "value" };
    const write = () => execution.append(okRecord(command, make()));
    return this.#resultOf(key, await execution.answer(command, execution.match(command), write));
  }
}

function failure({ reason }: PromiseRejectedResult): UpdateAnswer {
  return { error: decode<ErrorInfo>(encodeError(reason)) };
}

async function settled(promise: Promise<unknown>): Promise<PromiseSettledResult<unknown>> {
  const [result] = await Promise.allSettled([promise]);
  return result;
}

export function signalId(signal: string, dedupeId: string | undefined): string {
  return JSON.stringify([signal, dedupeId]);
}

interface DiscardedSignal {
  readonly dedupeId: string;
  readonly error: ErrorInfo;
  readonly retryIn: Millis;
}

interface ReceivedSignal {
  /** Undefined if the wait timed out. */
  readonly dedupeId?: string;
  readonly value: unknown;
}

function decodePayload(what: string, payload: string): unknown {
  try {
    return decode(payload);
  } catch (error) {
    throw invalidValue(what, [toErrorInfo(error).message]);
  }
}
