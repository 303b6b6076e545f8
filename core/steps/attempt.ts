import { isTransactionRefused } from "../journal/journal.ts";
import { LONGEST_RESULT, type NewRecord, type StepRecord } from "../journal/records.ts";
import { deadline, race } from "../lock/abort.ts";
import { hasCode } from "../lock/errors.ts";
import type { Fence } from "../lock/fence.ts";
import type { LockSet } from "../lock/lock.ts";
import { usualTtl } from "../lock/request.ts";
import { elapsedSince, instant, jittered, type Millis } from "../lock/time.ts";
import { callStep } from "./calls.ts";
import { decode, encode, encodeError, encodeInfo, encodeResult } from "./codec.ts";
import { wasInterrupted } from "./effect.ts";
import {
  EngineFailure,
  failEngine,
  isBlocking,
  isStop,
  locatedInfo,
  MisuseError,
  noLocks,
  StepTimeoutError,
  Suspension,
  stepInterrupted,
  TerminalError,
  toMisuse,
} from "./errors.ts";
import type { RunExecution } from "./execution.ts";
import type { StepHistory } from "./history.ts";
import { intercept } from "./interceptor.ts";
import { contentionName } from "./lock-contention.ts";
import { retryDelay } from "./retry.ts";
import { validate } from "./schema.ts";
import type { CheckedLock, Step } from "./step.ts";
import { attemptKey } from "./step-keys.ts";
import type { TxScope } from "./step-options.ts";

/** The value of the record of a failed attempt. */
interface FailedAttempt {
  readonly error: unknown;

  /** Counted from the time of the record. */
  readonly retryIn: Millis;
}

/** Attempts a step until it has a final record, and resolves to that record. */
export async function runStep(
  execution: RunExecution,
  step: Step,
  history: StepHistory,
): Promise<StepRecord> {
  await waitForRetry(execution, history);
  for (let number = history.failures + 1; ; number += 1) {
    const isInterrupted =
      history.attempt("started", number) ||
      wasInterrupted(execution.history.supersededOf(step.key));
    if (step.atMostOnce && isInterrupted) {
      const value = encodeError(stepInterrupted(step.key));
      return execution.append(recordOf(step, number, { outcome: "failed", value }));
    }
    execution.checkMayBegin();
    if (execution.deadline.remaining() <= step.budget) throw new Suspension("deadline", 0);
    const attempt = new Attempt(execution, step, number);
    const result = await attempt.run();
    if (result.record) return result.record;
    const { error, retryIn } = decideRetry(result.error, number, step);
    const value = encodeFailure(error, attempt.hasBegun && !step.readOnly);
    const durations = attempt.durations();
    if (retryIn === undefined) {
      return execution.append(recordOf(step, number, { outcome: "failed", value, ...durations }));
    }
    const failed: FailedAttempt = { error: decode(value), retryIn };
    await execution.append({
      ...recordOf(step, number, { outcome: "retry", value: encode(failed), ...durations }),
      key: attemptKey(step.key, "retry", number),
    });
    await execution.pause("retry-delay", retryIn);
  }
}

/** An attempt that has not begun had no effect, whatever its error is. */
function encodeFailure(error: unknown, hasBegun: boolean): string {
  const info = locatedInfo(error);
  return encodeInfo(hasBegun ? info : { ...info, effect: "none" });
}

/** An error of the policy itself is final. */
function decideRetry(error: unknown, attempt: number, { retry }: Step) {
  try {
    return { error, retryIn: retryDelay(error, attempt, retry) };
  } catch (policyError) {
    return { error: policyError, retryIn: undefined };
  }
}

/** Waits for the rest of a pause between attempts: a signal may have woken the parked run before its end. */
async function waitForRetry(execution: RunExecution, history: StepHistory): Promise<void> {
  const last = history.attempt("retry", history.failures);
  if (last === undefined || history.attempt("started", history.failures + 1)) return;
  const { retryIn } = execution.decode<FailedAttempt>(last.value);
  await execution.pause("retry-delay", retryIn - execution.since(last.at));
}

function recordOf(
  { key, kind, argsHash }: Step,
  attempt: number,
  rest: Pick<NewRecord, "outcome" | "value"> & Partial<NewRecord>,
): NewRecord {
  return { key, kind, attempt, argsHash, ...rest };
}

type AttemptResult =
  | { readonly record: StepRecord; readonly error?: undefined }
  | { readonly record?: undefined; readonly error: unknown };

class Attempt {
  readonly #execution: RunExecution;
  readonly #step: Step;
  readonly #number: number;
  readonly #startedAt = instant();

  /** For the locks. */
  #waited: Millis | undefined;
  #hasBegun = false;

  constructor(execution: RunExecution, step: Step, number: number) {
    this.#execution = execution;
    this.#step = step;
    this.#number = number;
  }

  /** Whether the step's function was called. */
  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  durations(): Pick<NewRecord, "took" | "waited"> {
    const waited = this.#waited ?? 0;
    // A clock that was set back may report a wait that is longer than the attempt.
    return { took: Math.max(0, elapsedSince(this.#startedAt) - waited), waited: this.#waited };
  }

  /** Rejects only with a Suspension or an EngineFailure. */
  async run(): Promise<AttemptResult> {
    const { interceptor, runId, workflow } = this.#execution;
    const { name, key, kind } = this.#step;
    const about = { runId, workflow: workflow.name, name, key, kind, attempt: this.#number };
    const hook = interceptor.step?.bind(interceptor);
    try {
      return { record: await intercept(hook, about, () => this.#withLocks()) };
    } catch (error) {
      const stop = this.#stopOf(error);
      if (!stop || error instanceof MisuseError) this.#execution.reportError(error, about);
      if (!stop) return { error };
      const isInterrupted = stop instanceof Suspension || isBlocking(stop.error);
      if (isInterrupted && this.#mayHaveEffect) await this.#recordStart();
      throw stop;
    } finally {
      this.#execution.inProgress.end(key);
    }
  }

  get #mayHaveEffect(): boolean {
    const { kind, readOnly } = this.#step;
    return this.#hasBegun && kind === "step" && !readOnly;
  }

  /** Returns the reason if the execution stops. A misuse inside an undo fails the undo alone. */
  #stopOf(error: unknown): Suspension | EngineFailure | undefined {
    if (isStop(error)) return error;
    if (error instanceof MisuseError && this.#step.kind !== "undo") return new EngineFailure(error);
    return this.#execution.stopReason;
  }

  async #withLocks(): Promise<StepRecord> {
    const { lock } = this.#step;
    const locks = lock && (await this.#acquire(lock));
    try {
      // The run's time may be over since the wait for the locks began: its next execution tells.
      if (this.#execution.timeLeft <= 0) throw new Suspension("deadline", 0);
      return await this.#underLocks(locks);
    } finally {
      await locks?.[Symbol.asyncDispose]();
      if (locks) void this.#execution.contention.released(locks.names);
    }
  }

  /**
   * Parks the run for locks that others hold, and for a lock store that does not answer: no attempt has failed. Rejects
   * with a MisuseError for options that the store refuses.
   */
  async #acquire({ names, ttl, wait, onBusy }: CheckedLock): Promise<LockSet> {
    const { locks, deadline, attemptSignal: signal, contention, lockWait } = this.#execution;
    if (!locks) return failEngine(noLocks(this.#step.key));
    const startedAt = instant();
    const parksEarly = onBusy === "wait" && lockWait !== undefined;
    // A late acquire leaves enough time for the work.
    const left = Math.min(deadline.remaining() - this.#step.budget, this.#execution.timeLeft);
    const bounds = [wait, Math.max(0, left)];
    if (parksEarly) bounds.push(contention.hasWaiting(names) ? 0 : lockWait);
    const patience = Math.min(...bounds);
    this.#execution.inProgress.begin(this.#step.key, contentionName(names));
    try {
      const work = { run: this.#execution.runId, step: this.#step.key };
      const options = { ttl: ttl ?? usualTtl(locks), wait: patience, deadline, signal, work };
      return await locks.lockAll(names, options);
    } catch (error) {
      if (hasCode(error, "LOCK_TIMEOUT") && onBusy === "fail" && patience === wait) {
        throw new TerminalError("LOCK_TIMEOUT", (error as Error).message);
      }
      if (!hasCode(error, ...TRANSIENT)) throw toMisuse(error, `step ${this.#step.key}: `);
      const pause = jittered(BUSY_PAUSE);
      if (!parksEarly || !hasCode(error, "LOCK_TIMEOUT")) throw new Suspension("lock-busy", pause);
      const busy = contention.busy(names, pause);
      throw new Suspension("lock-busy", busy.wakeIn, { busy });
    } finally {
      this.#waited = elapsedSince(startedAt);
    }
  }

  async #underLocks(locks: LockSet | undefined): Promise<StepRecord> {
    const { key, timeout, transacted } = this.#step;
    // Before the timeout begins: its time is for the step's function.
    if (!transacted && (await this.#isStartRecorded())) await this.#recordStart();
    const late = () => new StepTimeoutError(key, timeout);
    const limit = deadline(timeout, late, this.#execution.attemptSignal, locks?.signal);
    const scope = this.#scope(limit.signal, locks);
    try {
      if (transacted) return await this.#inTransaction(scope, locks);
      const value = await this.#call(scope);
      locks?.assertHeld();
      return await this.#execution.append(this.#done(value, locks));
    } finally {
      limit[Symbol.dispose]();
    }
  }

  #scope(signal: AbortSignal, locks: LockSet | undefined): TxScope {
    const { runId, deadline } = this.#execution;
    const { key } = this.#step;
    return {
      runId,
      key,
      attempt: this.#number,
      idempotencyKey: this.#execution.idempotencyKey(key),
      signal,
      deadline,
      ...(locks && { lock: locks, fence: this.#firstFence(locks), fences: locks.fences }),
    } as unknown as TxScope;
  }

  #firstFence({ fences }: LockSet): Fence | undefined {
    return fences.get(this.#step.lock?.names[0] ?? "");
  }

  /** The start is on record before a step's first effect, so that an undo is called even after a crash. */
  async #isStartRecorded(): Promise<boolean> {
    if (this.#step.atMostOnce) return true;
    return (
      this.#step.undo !== undefined && (await this.#execution.effects.of(this.#step)) === "not-done"
    );
  }

  /** Once: also for an attempt that is interrupted, whose effect is unknown. */
  async #recordStart(): Promise<void> {
    const record = recordOf(this.#step, this.#number, { outcome: "started", value: undefined });
    const key = attemptKey(this.#step.key, "started", this.#number);
    if (!this.#execution.history.record(key)) await this.#execution.append({ ...record, key });
  }

  /** Calls the step's function. Resolves to its encoded result. */
  async #call(scope: TxScope): Promise<string> {
    // After a freeze of the process, the clocks tell before the timers fire.
    this.#execution.checkActive();
    (scope as Partial<TxScope>).lock?.assertHeld();
    scope.signal.throwIfAborted();
    const { fn, key } = this.#step;
    this.#hasBegun = true;
    this.#execution.inProgress.begin(key);
    this.#execution.history.begin(key);
    const called = callStep(this.#execution, key, () => fn(scope));
    // Schemas and codecs may take their time as well.
    return await race(this.#encode(called), scope.signal);
  }

  /** Resolves to the encoded result of the step's function. */
  async #encode(called: Promise<unknown>): Promise<string> {
    const { output, key } = this.#step;
    const what = `the result of ${key}`;
    const result = await called;
    const value = output ? await validate(what, output, result) : result;
    return encodeResult(what, value, { seal: this.#execution.seal, longest: LONGEST_RESULT });
  }

  /** Rethrows an error of the step's function as it is, unlike one of the journal. */
  async #inTransaction(scope: TxScope, locks: LockSet | undefined): Promise<StepRecord> {
    const { key } = this.#step;
    const fences = [...(locks?.fences.values() ?? [])];
    let thrown: { readonly error: unknown } | undefined;
    try {
      const body = async (tx: TxScope["tx"]) => {
        thrown = undefined;
        try {
          return this.#done(await this.#call({ ...scope, tx }), locks);
        } catch (error) {
          thrown = { error };
          throw error;
        }
      };
      return await this.#execution.transact({ key, fences }, body, scope.signal);
    } catch (error) {
      const cause = error instanceof EngineFailure ? error.error : error;
      const isStepError = thrown !== undefined && thrown.error === cause;
      const isRefused =
        isTransactionRefused(cause) || hasCode(cause, "FENCED_OUT", "FENCE_INVALID");
      throw isStepError || isRefused ? cause : error;
    }
  }

  #done(value: string, locks: LockSet | undefined): NewRecord {
    const fence = locks && [...locks.fences.values()].join(" ");
    return recordOf(this.#step, this.#number, { outcome: "ok", value, fence, ...this.durations() });
  }
}

/** Errors of a lock store that park the run. */
const TRANSIENT = [
  "LOCK_TIMEOUT",
  "STORE_UNAVAILABLE",
  "STORE_CLOSED",
  "SESSION_EXPIRED",
  "TOO_MANY_WAITERS",
  "UNKNOWN_OUTCOME",
] as const;

/** How long a run is parked for a busy lock, give or take a half. */
const BUSY_PAUSE: Millis = 500;
