import type { ParkRequest } from "../journal/changes.ts";
import type { Journal } from "../journal/journal.ts";
import { StaleRunError } from "../journal/journal.ts";
import type { NewRecord, StepRecord } from "../journal/records.ts";
import type { ClaimedRun, ParkReason, RunKey } from "../journal/runs.ts";
import { sleep } from "../lock/abort.ts";
import { hasCode, isLoss, type LossReason, quote } from "../lock/errors.ts";
import { nextTurn } from "../lock/event-loop.ts";
import type { Lease } from "../lock/lease.ts";
import type { LockStore } from "../lock/lock.ts";
import { after, type Deadline, type Millis } from "../lock/time.ts";
import { decode, encodeError, encodeInfo, encodeResult } from "./codec.ts";
import type { RuntimeOptions } from "./contract.ts";
import type { Envelopes, Seal } from "./envelope.ts";
import {
  EngineFailure,
  type ErrorInfo,
  failEngine,
  HistoryEnd,
  isStop,
  isTerminal,
  MisuseError,
  noDatabase,
  runCancelled,
  runTimeout,
  Suspension,
  TerminalError,
  toErrorInfo,
  toMisuse,
} from "./errors.ts";
import type { RunListener } from "./events.ts";
import { type EarlierResult, History, type StepHistory, type WorkflowCommand } from "./history.ts";
import { idempotencyKey } from "./idempotency.ts";
import type { InterceptedStep, Interceptor } from "./interceptor.ts";
import type { LockContention } from "./lock-contention.ts";
import { OrderedTurns } from "./ordered-turns.ts";
import { ReplayGate } from "./replay-gate.ts";
import { StepEffects } from "./step-effects.ts";
import { StepsInProgress } from "./steps-in-progress.ts";
import type { AnyWorkflow } from "./workflow.ts";

export interface RuntimeServices {
  readonly journal: Journal;

  /** The name of this process in the journal. */
  readonly owner: string;

  /** How long the lease of a run lasts without a renewal. */
  readonly leaseTtl: Millis;
  readonly envelopes: Envelopes | undefined;
  readonly locks: LockStore | undefined;

  /** Pauses up to this length are waited for in the process. The run is parked for longer ones. */
  readonly inlineWait: Millis;

  /** Whether sleeps and pauses between attempts take no time. */
  readonly skipPauses: boolean;
  readonly contention: LockContention;
  readonly notify: RunListener;
  readonly onError: NonNullable<RuntimeOptions["onError"]>;
  readonly interceptor: Interceptor;
}

export interface ExecutionOptions {
  readonly services: RuntimeServices;
  readonly key: RunKey;
  readonly claimed: ClaimedRun;

  /** All records of the run. */
  readonly records: readonly StepRecord[];
  readonly workflow: AnyWorkflow;
  readonly lease: Lease;
  readonly deadline: Deadline;

  /** Stops the execution and aborts the steps in progress. */
  readonly signal: AbortSignal | undefined;

  /** Stops the execution at the next step. */
  readonly drain: AbortSignal | undefined;

  /** The longest wait for a busy lock before the run is parked. Undefined: as the step says. */
  readonly lockWait: Millis | undefined;
}

type Transact = NonNullable<Journal["transact"]>;

/** The key of the record with the failure that a run is undone for. */
const FAILURE = "~failure";

/** A call of `ctx.continueAsNew`. */
export interface Continuation {
  /** Encoded. */
  readonly input: string;
  readonly dropUndos: boolean;
}

/** One execution of a run by one process, from the claim until the run ends or is parked. */
export class RunExecution {
  readonly runId: string;
  readonly workflow: AnyWorkflow;
  readonly claimed: ClaimedRun;
  readonly deadline: Deadline;
  readonly history: History;
  readonly inProgress: StepsInProgress;

  /** Of the steps that the workflow's code has reached. */
  readonly effects: StepEffects;
  readonly #options: ExecutionOptions;
  readonly #services: RuntimeServices;
  readonly #claimedAt = performance.now();

  /** Repeats results from before the run was reopened. */
  readonly #repeats: OrderedTurns;

  /** For the workflow's code. */
  readonly #bodyGate = new ReplayGate();

  /** The gate of the current phase. */
  #gate = this.#bodyGate;

  #hasWritten = false;
  #divergence: TerminalError | undefined;
  #isCancelled: boolean;

  /** The number of the run's signals, as the journal has told last. */
  #signals: number;

  /** Aborts the attempts of the workflow's steps. */
  readonly #attempts = new AbortController();
  #stopError: TerminalError | undefined;

  /** How often a call of the workflow's code was refused with that error. */
  #refusals = 0;
  #continuation: Continuation | undefined;
  #isUndoing = false;

  constructor(options: ExecutionOptions) {
    const { key, workflow, claimed, deadline, services, lease } = options;
    this.#options = options;
    this.#services = services;
    this.runId = key.runId;
    this.workflow = workflow;
    this.claimed = claimed;
    this.deadline = deadline;
    this.history = new History(options.records, {
      patience: () => this.#patience(),
      mayBeSlow: claimed.blocks === 0,
      signal: this.#bodyGate.signal,
      values: (keys) => services.journal.values(this.runId, keys).catch(failEngine),
    });
    this.#repeats = new OrderedTurns(this.history.reusable, {
      patience: () => Math.min(REPEAT_PATIENCE, deadline.remaining() / 2),
      signal: this.#bodyGate.signal,
    });
    this.inProgress = new StepsInProgress(
      () => new Date(this.#now()),
      () => lease.renewEarly(),
    );
    this.effects = new StepEffects(this);
    this.#isCancelled = claimed.cancelled;
    this.#signals = claimed.signalsSeen;
    this.#bodyGate.signal.addEventListener("abort", () => {
      this.#attempts.abort(this.#bodyGate.signal.reason);
    });
  }

  get locks(): LockStore | undefined {
    return this.#services.locks;
  }

  /** Encodes values as the journal does. Undefined without a codec. */
  get seal(): Seal | undefined {
    return this.#services.envelopes?.sealFor(this.runId);
  }

  /** For tests: whether sleeps, pauses and the timeouts of signals take no time. */
  get skipsPauses(): boolean {
    return this.#services.skipPauses;
  }

  get contention(): LockContention {
    return this.#services.contention;
  }

  get lockWait(): Millis | undefined {
    return this.#options.lockWait;
  }

  get interceptor(): Interceptor {
    return this.#services.interceptor;
  }

  /** Reports an error of the run's code, or of an attempt. */
  reportError(error: unknown, at?: InterceptedStep): void {
    const { runId, workflow } = this;
    this.#services.onError(error, at ?? { runId, workflow: workflow.name });
  }

  /** Aborts with a Suspension or an EngineFailure when the execution stops. */
  get signal(): AbortSignal {
    return this.#gate.signal;
  }

  /** Whether the workflow's code goes on no more: it has ended, or the execution has stopped. */
  get isBodyOver(): boolean {
    return this.#bodyGate.signal.aborted;
  }

  /** Aborts the attempts in progress, also with RUN_CANCELLED. A cancellation does not abort undos. */
  get attemptSignal(): AbortSignal {
    return this.#isUndoing ? this.signal : this.#attempts.signal;
  }

  /** Whether the execution has written a record. */
  get hasWritten(): boolean {
    return this.#hasWritten;
  }

  /** The failure that an earlier execution began to undo the run for. */
  get recordedFailure(): ErrorInfo | undefined {
    const record = this.history.record(FAILURE);
    return record && this.decode<ErrorInfo>(record.value);
  }

  get isCancelled(): boolean {
    return this.#isCancelled;
  }

  /** The failure of a cancelled run, whatever its code does after the cancellation. */
  get cancellation(): ErrorInfo | undefined {
    return this.#isCancelled ? toErrorInfo(runCancelled(this.runId)) : undefined;
  }

  /** Cancels the run while it is executed: aborts the attempts in progress, and no step begins. */
  cancel(): void {
    this.#isCancelled = true;
    this.#attempts.abort(runCancelled(this.runId));
  }

  /** Notes how many signals the run has received. */
  noteSignals(signals: number): void {
    this.#signals = signals;
  }

  /** Whether a branch of the workflow's code can receive, in the next execution, what has arrived since the claim. */
  get hasDueBranch(): boolean {
    const news = this.#signals - this.claimed.signalsSeen;
    return !this.#isUndoing && this.#bodyGate.hasDueBranch(news);
  }

  /** Runs the workflow's code. Resolves to a Suspension when the run is to be parked. */
  bodyPhase<T>(work: () => Promise<T>): Promise<T | Suspension> {
    return this.#phase(this.#bodyGate, work);
  }

  /** Runs the undos. Resolves to a Suspension when the run is to be parked. */
  undoPhase<T>(work: () => Promise<T>): Promise<T | Suspension> {
    this.#isUndoing = true;
    return this.#phase(new ReplayGate(), work);
  }

  async #phase<T>(gate: ReplayGate, work: () => Promise<T>): Promise<T | Suspension> {
    this.#gate = gate;
    using _ = this.#stopWhenOver(gate);
    try {
      const result = await Promise.race([work(), gate.halted]);
      return result ?? gate.suspension;
    } finally {
      gate.close();
      await gate.idle();
    }
  }

  /** Stops the gate when the lease is lost, the deadline has passed, or the caller's signal aborts. */
  #stopWhenOver(gate: ReplayGate): Disposable {
    const { lease, signal, deadline } = this.#options;
    const onEnd = (why: LossReason) => {
      if (isLoss(why)) gate.stop(new EngineFailure(lease.signal.reason));
    };
    const onStop = () => gate.stop(new Suspension("deadline", 0));
    if (lease.ended) onEnd(lease.ended);
    if (signal?.aborted) onStop();
    // Not its signal, whose reason has a stack, also after a release.
    lease.onEnd(onEnd);
    signal?.addEventListener("abort", onStop);
    const left = deadline.remaining();
    const cancel = Number.isFinite(left) ? after(left, onStop) : () => {};
    return {
      [Symbol.dispose]: () => {
        signal?.removeEventListener("abort", onStop);
        cancel();
      },
    };
  }

  /** Returns the request to park the run, which is due at the latest when the workflow's timeout has passed. */
  toPark({ reason, wakeIn, lock }: Suspension): Omit<ParkRequest, "signalsSeen"> {
    const park = { reason, wakeIn, ...(lock !== undefined && { lock }) };
    const children = this.#gate.childrenWait;
    if (this.recordedFailure || this.#isUndoing) return { ...park, children };
    const left = Math.max(0, this.timeLeft);
    // 1 ms more: times in the journal are whole milliseconds.
    return { ...park, wakeIn: Math.min(wakeIn, left + 1), children };
  }

  /** Matches a command against the history; synchronously, so that commands are matched in the order of their calls. */
  match(command: WorkflowCommand): StepHistory {
    this.#bodyGate.noteCommand();
    if (this.#divergence) throw this.#divergence;
    try {
      return this.history.match(command);
    } catch (error) {
      return this.#diverge(error);
    }
  }

  /** Resolves to the recorded result or, after the end of the replay, to that of `work`. */
  async answer(
    command: WorkflowCommand,
    { final }: StepHistory,
    work: () => Promise<StepRecord>,
  ): Promise<StepRecord> {
    if (final === undefined) return this.#live(command, work);
    const answer = await this.history.answerOf(final).catch((error) => this.#undelivered(error));
    this.#services.notify({ type: "replayed", runId: this.runId, key: command.key });
    return answer;
  }

  /** Stops the execution. Never settles, except that code which has changed gets its error. */
  #undelivered(error: unknown): Promise<never> {
    if (!isStop(error)) return this.#diverge(error);
    this.#gate.stop(error);
    return new Promise(() => {});
  }

  #live(command: WorkflowCommand, work: () => Promise<StepRecord>): Promise<StepRecord> {
    return this.#bodyGate.pass(async () => {
      await this.catchUp(command.key);
      await this.#checkMayCall();
      const earlier = this.history.earlierResult(command);
      try {
        const record = earlier
          ? await this.#repeat(command, earlier)
          : await work().catch((error) => this.#recordError(command, error));
        return await this.withValue(record);
      } finally {
        await this.history.turnOf(command.key);
      }
    });
  }

  /** Records the result of a step from before the run was reopened once more: in the same order, so that races end the same way. */
  #repeat({ key }: WorkflowCommand, { record, position }: EarlierResult): Promise<StepRecord> {
    return this.#repeats.run(position, async () => {
      this.checkActive();
      const { epoch: _, at: __, valueBytes: ___, ...result } = await this.withValue(record);
      return this.append({ ...result, key });
    });
  }

  /** Reads the large result of a record that lacks it. */
  async withValue(record: StepRecord): Promise<StepRecord> {
    const { key, value, valueBytes } = record;
    if (valueBytes === undefined || value !== undefined) return record;
    const { journal } = this.#services;
    const values = await journal.values(this.runId, [key]).catch(failEngine);
    return { ...record, value: values.get(key) };
  }

  /** Returns the key with which other systems recognise a repetition of the step, also in a fork that uses its result. */
  idempotencyKey(key: string, step = key, generation = this.history.generationOf(step)): string {
    const runId = this.history.originOf(step, generation) ?? this.runId;
    return idempotencyKey(runId, key, generation, this.claimed.part);
  }

  /** Records an error, so that the workflow's code gets the same one on replay. */
  async #recordError(
    { key, kind, argsHash }: WorkflowCommand,
    error: unknown,
  ): Promise<StepRecord> {
    if (isStop(error) || isTerminal(error, "UNREADABLE_VALUE") || error === this.#stopError)
      throw error;
    const value = encodeError(error);
    return this.append({ key, kind, argsHash, outcome: "failed", attempt: 1, value });
  }

  /** Resolves at the end of the replay. `what` names the waiting command in errors. */
  catchUp(what: string, options?: { readonly isEnd: boolean }): Promise<void> {
    return this.history.caughtUp(what, options).catch((error) => this.#diverge(error));
  }

  /** Runs work of the current phase. Never settles when the execution stops. */
  perform<T>(work: () => Promise<T>): Promise<T> {
    return this.#gate.pass(work);
  }

  /** Records why the run is undone, unless an earlier execution has done so. */
  async recordFailure(failure: ErrorInfo): Promise<void> {
    if (this.recordedFailure) return;
    const value = encodeInfo(failure);
    await this.perform(() =>
      this.append({ key: FAILURE, kind: "failure", outcome: "failed", attempt: 1, value }),
    );
  }

  /** Rejects with an EngineFailure when the journal does not accept the record. */
  async append(record: NewRecord): Promise<StepRecord> {
    const { journal } = this.#services;
    return this.#recorded(await journal.append(this.#options.key, record).catch(failEngine));
  }

  /** Rejects with an EngineFailure of the error of the body or of the journal. */
  async transact(
    step: Parameters<Transact>[1],
    body: Parameters<Transact>[2],
    signal: AbortSignal,
  ): Promise<StepRecord> {
    const { journal } = this.#services;
    if (!journal.transact) return failEngine(noDatabase(step.key));
    const transacted = journal.transact(this.#options.key, step, body, signal);
    const record = await transacted.catch((error) => {
      if (signal.aborted && hasCode(error, "UNKNOWN_OUTCOME")) return this.#committed(step, signal);
      this.checkActive();
      signal.throwIfAborted();
      return failEngine(error);
    });
    return this.#recorded(record);
  }

  /**
   * Resolves to the record of a transaction that was aborted during its commit, if it was committed: its undo is
   * needed then.
   *
   * The rows of the fences make this second transaction wait for the end of the first.
   */
  async #committed(step: Parameters<Transact>[1], { reason }: AbortSignal): Promise<StepRecord> {
    const notCommitted = new Error("the transaction was not committed");
    const refuse = () => Promise.reject(notCommitted);
    const read = this.#services.journal.transact?.(this.#options.key, step, refuse) ?? refuse();
    return read.catch((error) => {
      if (error !== notCommitted && !hasCode(error, "FENCED_OUT")) throw new EngineFailure(error);
      throw reason;
    });
  }

  #recorded(record: StepRecord): StepRecord {
    this.#hasWritten = true;
    this.history.add(record);
    if (this.history.size === LONG_HISTORY) {
      const { runId, workflow } = this;
      const records = LONG_HISTORY;
      this.#services.notify({ type: "long-history", runId, workflow: workflow.name, records });
    }
    this.#services.notify({ type: "recorded", runId: this.runId, record });
    return record;
  }

  /** Sleeps if the span is short. Suspends the branch otherwise. */
  async pause(reason: ParkReason, span: Millis): Promise<void> {
    const { inlineWait, skipPauses } = this.#services;
    if (span <= 0 || skipPauses) return;
    this.#checkDrain(reason, span);
    if (span > inlineWait || span >= this.deadline.remaining()) {
      return this.#gate.suspend(new Suspension(reason, span));
    }
    await sleep(span, this.signal);
  }

  /** The milliseconds that are left of the workflow's timeout. Undoing has no limit. */
  get timeLeft(): Millis {
    if (this.#isUndoing) return Number.POSITIVE_INFINITY;
    return this.workflow.timeout - this.since(this.claimed.startedAt);
  }

  /** Returns the milliseconds since a time of the journal's clock. */
  since(at: Date): Millis {
    return this.#now() - at.getTime();
  }

  #now(): Millis {
    return this.claimed.now.getTime() + performance.now() - this.#claimedAt;
  }

  /** Throws a Suspension or an EngineFailure once the execution has stopped. */
  checkActive(): void {
    const reason = this.stopReason;
    if (reason) throw reason;
  }

  /** Why the execution has stopped. Undefined while it goes on. */
  get stopReason(): Suspension | EngineFailure | undefined {
    const { lease, key } = this.#options;
    if (lease.remaining() <= 0) return new EngineFailure(new StaleRunError(key));
    return this.signal.aborted ? this.signal.reason : undefined;
  }

  /** Throws if no new attempt may begin: the run is cancelled, timed out, failed, drained, or parked for a due branch. */
  checkMayBegin(): void {
    if (!this.#isUndoing) {
      this.#stopError ??= this.#toStopError();
      if (this.#stopError) throw this.#stopError;
    }
    if (this.hasDueBranch) throw new Suspension("deadline", 0);
    this.#checkDrain("deadline", 0);
  }

  /**
   * Throws unless the workflow's code may call. Code that catches the error and calls again gets a turn of the event loop
   * each time, and no more answers in the end: the run is undone without it.
   */
  async #checkMayCall(): Promise<void> {
    try {
      this.checkMayBegin();
    } catch (error) {
      if (error !== this.#stopError) throw error;
      this.#refusals += 1;
      if (this.#refusals > MOST_REFUSALS) throw new Suspension("deadline", 0);
      await nextTurn();
      throw error;
    }
  }

  /** Why a call was refused, such as the run's timeout. The run is undone, also if its code has caught the error. */
  get refusal(): ErrorInfo | undefined {
    return this.#stopError && toErrorInfo(this.#stopError);
  }

  /** Why the run is undone although its code has not ended. */
  get abandonment(): ErrorInfo | undefined {
    return this.#refusals > MOST_REFUSALS ? this.refusal : undefined;
  }

  #checkDrain(reason: ParkReason, wakeIn: Millis): void {
    if (this.#options.drain?.aborted) throw new Suspension(reason, wakeIn);
  }

  /** Ends the history, and begins the next one with this input. Never settles. `patience` is for the other branches. */
  continueAsNew(continuation: Continuation, patience: () => Millis): Promise<never> {
    this.#bodyGate.noteCommand();
    return this.#bodyGate.pass(async () => {
      await this.catchUp("continueAsNew");
      await this.#checkMayCall();
      this.#continuation ??= continuation;
      throw new HistoryEnd(patience);
    });
  }

  /** How the body wants to go on in a new history. */
  get continuation(): Continuation | undefined {
    return this.#continuation;
  }

  #toStopError(): TerminalError | undefined {
    const failure = this.recordedFailure;
    if (failure) return new TerminalError(failure.code ?? "FAILED", failure.message);
    if (this.isCancelled) return runCancelled(this.runId);
    if (this.history.size >= LONGEST_HISTORY) return historyTooLong(this.runId);
    return this.timeLeft < 0 ? runTimeout(this.runId, this.workflow.timeout) : undefined;
  }

  /**
   * Returns the result of a check of a call's arguments. A TypeError or RangeError stops the execution as a misuse, unless
   * the run is to be undone in any case, such as a cancelled one.
   */
  checked<T>(check: () => T): T {
    try {
      return check();
    } catch (error) {
      if (this.#toStopError()) throw error;
      return this.#diverge(toMisuse(error));
    }
  }

  /** Stops the execution with the error, even if the workflow's code catches the error. */
  misuse(error: MisuseError): never {
    return this.#diverge(error);
  }

  #diverge(error: unknown): never {
    if (isStop(error)) this.#gate.stop(error);
    if (isTerminal(error, "NON_DETERMINISM") || error instanceof MisuseError) {
      this.#divergence ??= error;
      this.#gate.stop(new EngineFailure(error));
    }
    throw error;
  }

  /** Encodes a value of the body before it is recorded. The run is not parked meanwhile. */
  encode(what: string, value: unknown): Promise<string> {
    return this.#bodyGate.hold(() => encodeResult(what, value, this));
  }

  /** Validates and encodes the input of the next history. The run is not parked meanwhile. */
  encodeInput(input: unknown): Promise<string> {
    return this.#bodyGate.hold(async () => {
      const prepared = await this.workflow.prepare(input as never, this.runId);
      return encodeResult(`the input of ${this.workflow.name}`, prepared.input, this);
    });
  }

  /** Stops the execution if the text cannot be decoded. */
  decode<T>(text: string | undefined): T {
    try {
      return decode<T>(text);
    } catch (error) {
      this.#gate.stop(new EngineFailure(error));
      throw error;
    }
  }

  /** How long a replay waits for code that awaits something of its own. */
  #patience(): Millis {
    const longest = this.claimed.blocks === 0 ? LONGEST_PATIENCE : BLOCKED_PATIENCE;
    return Math.min(longest, this.deadline.remaining() / 2);
  }
}

/** The most calls of a stopped run that are refused with an error. */
const MOST_REFUSALS = 1_000;

/** The number of records that is reported. */
const LONG_HISTORY = 10_000;

/** The number of records after which no step begins. */
const LONGEST_HISTORY = 50_000;

function historyTooLong(runId: string): TerminalError {
  const problem = `the history of run ${quote(runId)} has ${LONGEST_HISTORY} records`;
  return new TerminalError("HISTORY_TOO_LONG", `${problem}; call ctx.continueAsNew before`);
}

/** The longest wait of a replayed body outside of its steps. After that the body counts as changed. */
const LONGEST_PATIENCE: Millis = 30_000;

/** How long a retry waits for the next result to repeat. After that the code has taken another way. */
const REPEAT_PATIENCE: Millis = 250;

/** A blocked run has had its long wait: its further tries occupy a worker for less. */
const BLOCKED_PATIENCE: Millis = 5_000;
