import type {
  Ending,
  Journal,
  NewRecord,
  Parking,
  ParkReason,
  Possession,
  RecordKind,
  RunKey,
  StepRecord,
} from "../journal/journal.ts";
import { StaleRunError } from "../journal/journal.ts";
import { sleep } from "../lock/abort.ts";
import { hasCode } from "../lock/errors.ts";
import type { Life } from "../lock/life.ts";
import type { LockStore } from "../lock/lock.ts";
import { after, type Deadline, type Millis } from "../lock/time.ts";
import type { Around } from "./around.ts";
import { carryOut } from "./attempt.ts";
import type { Carrier, Transaction } from "./carrier.ts";
import { decode, decodeError, encode, encodeError, encodeInfo, encodeResult } from "./codec.ts";
import {
  type ErrorInfo,
  NonDeterminismError,
  RunCancelledError,
  RunTimeoutError,
  TerminalError,
  toErrorInfo,
} from "./errors.ts";
import type { RunListener } from "./events.ts";
import { Gate } from "./gate.ts";
import { Breakdown, Suspension } from "./halt.ts";
import { History, type Met } from "./history.ts";
import { AnswerLine } from "./turns.ts";
import { toUndo, type Work } from "./work.ts";
import type { AnyWorkflow, WorkflowContext } from "./workflow.ts";

export interface Services {
  readonly journal: Journal;
  readonly locks: LockStore | undefined;

  /** Pauses up to this long are waited for in the process, holding the run. */
  readonly inlineWait: Millis;

  /** Whether sleeps and pauses between attempts take no time. */
  readonly skipPauses: boolean;
  readonly notify: RunListener;
  readonly around: Around;
}

export interface Terms {
  readonly services: Services;
  readonly key: RunKey;
  readonly possession: Possession;
  readonly workflow: AnyWorkflow;

  /** For how long the run is ours. */
  readonly life: Life;
  readonly deadline: Deadline;

  /** Lets go of the run. */
  readonly signal: AbortSignal | undefined;

  /** Lets go of the run at its next step. */
  readonly drain: AbortSignal | undefined;
}

/** The run has ended, or is to be parked. */
export type Left =
  | { readonly ending: Omit<Ending, "keep"> }
  | { readonly parking: Omit<Parking, "signalsSeen"> };

/** The key of the record that says why a run is being undone. */
const FAILURE = "~failure";

/** What the workflow's code has come to. */
export type Call = Pick<Work, "key"> & {
  readonly kind: RecordKind;
  readonly argsHash?: string | undefined;
};

interface BodyOutcome {
  /** Encoded. */
  readonly output?: string;
  readonly error?: ErrorInfo;
}

interface Undoing {
  /** Where the record of what is undone stands. */
  readonly index: number;
  readonly work: Work;
}

/** One holder's way through a run, from where it is taken up to where it ends or is parked. */
export class Drive implements Carrier {
  readonly runId: string;
  readonly possession: Possession;
  readonly deadline: Deadline;
  readonly services: Services;
  readonly history: History;
  readonly #terms: Terms;
  readonly #undos: Undoing[] = [];
  readonly #takenAt = performance.now();
  readonly #line = new AnswerLine();

  /** For all that the workflow's code does. Once it is closed, nothing of that goes on. */
  readonly #body = new Gate();
  #gate = this.#body;
  #written: number;
  #divergence: NonDeterminismError | undefined;
  #cancelled = false;
  #over: TerminalError | undefined;
  #isUndoing = false;

  constructor(terms: Terms) {
    this.#terms = terms;
    this.runId = terms.key.runId;
    this.possession = terms.possession;
    this.deadline = terms.deadline;
    this.services = terms.services;
    this.history = new History(terms.possession.records);
    this.#written = terms.possession.records.length;
  }

  get workflowName(): string {
    return this.#terms.workflow.name;
  }

  get locks(): LockStore | undefined {
    return this.services.locks;
  }

  get around(): Around {
    return this.services.around;
  }

  get signal(): AbortSignal {
    return this.#gate.signal;
  }

  /** Somebody has asked for it while the run is carried: it stops at its next step. */
  cancel(): void {
    this.#cancelled = true;
  }

  /** Nothing is under way when it settles. Rejects when the run is lost, or the journal does not answer. */
  async run(ctx: WorkflowContext): Promise<Left> {
    const body = await this.#phase(this.#body, () => this.#carryBody(ctx));
    if (body instanceof Suspension) return { parking: this.#inTime(body) };
    if (this.#divergence)
      return this.#failed(toErrorInfo(this.#divergence), this.#undos.length === 0);
    const failure = this.#recordedFailure ?? body.error;
    if (!failure) {
      const value = body.output ?? encode(undefined);
      return { ending: { status: "completed", value, compensated: true } };
    }
    const compensated = await this.#phase(new Gate(), () => this.#compensate(failure));
    if (compensated instanceof Suspension) return { parking: this.#inTime(compensated) };
    return this.#failed(failure, compensated);
  }

  #failed(error: ErrorInfo, compensated: boolean): Left {
    const isOurs = error.code === "RUN_CANCELLED" && this.#isCancelled;
    const status = isOurs ? "cancelled" : "failed";
    return { ending: { status, value: encodeInfo(error), compensated } };
  }

  /** The end of the workflow's own time wakes the run as well. */
  #inTime({ reason, wakeIn }: Suspension): Omit<Parking, "signalsSeen"> {
    if (this.#recordedFailure || this.#isUndoing) return { reason, wakeIn };
    const { possession, workflow } = this.#terms;
    const left = Math.max(0, workflow.timeout - this.since(possession.startedAt));
    // 1 ms more: times in the journal are whole milliseconds.
    return { reason, wakeIn: Math.min(wakeIn, left + 1) };
  }

  /** Resolves to a Suspension when the work cannot be finished now. */
  async #phase<T>(gate: Gate, work: () => Promise<T>): Promise<T | Suspension> {
    this.#gate = gate;
    using _ = this.#leash(gate);
    try {
      const result = await Promise.race([work(), gate.halted]);
      return result ?? gate.suspension;
    } finally {
      gate.close();
      await gate.idle();
    }
  }

  /** Closes the gate when the run is lost, its time is up, or whoever drives it lets go. */
  #leash(gate: Gate): Disposable {
    const { life, signal, deadline } = this.#terms;
    const onLost = () => gate.letGo(new Breakdown(life.signal.reason));
    const onLetGo = () => gate.letGo(new Suspension("deadline", 0));
    if (life.signal.aborted) onLost();
    if (signal?.aborted) onLetGo();
    life.signal.addEventListener("abort", onLost);
    signal?.addEventListener("abort", onLetGo);
    const left = deadline.remaining();
    const cancel = Number.isFinite(left) ? after(left, onLetGo) : () => {};
    return {
      [Symbol.dispose]: () => {
        life.signal.removeEventListener("abort", onLost);
        signal?.removeEventListener("abort", onLetGo);
        cancel();
      },
    };
  }

  async #carryBody(ctx: WorkflowContext): Promise<BodyOutcome> {
    const { workflow, possession } = this.#terms;
    let outcome: BodyOutcome;
    try {
      const output = await workflow.run(ctx, decode(possession.input));
      outcome = { output: encodeResult("the output", output) };
    } catch (error) {
      outcome = { error: toErrorInfo(error) };
    }
    if (!this.#divergence) await this.#converging(this.history.caughtUp("the end")).catch(() => {});
    return outcome;
  }

  get #recordedFailure(): ErrorInfo | undefined {
    const record = this.history.record(FAILURE);
    return record && decodeError(record.value);
  }

  /** Undoes what was done, the last first. Resolves to whether all of it is undone. */
  async #compensate(failure: ErrorInfo): Promise<boolean> {
    if (this.#undos.length === 0) return true;
    this.#isUndoing = true;
    if (!this.#recordedFailure) {
      const value = encodeInfo(failure);
      await this.#gate.pass(() =>
        this.append({ key: FAILURE, kind: "failure", outcome: "failed", attempt: 1, value }),
      );
    }
    let all = true;
    for (const { work } of this.#undos.toSorted((a, b) => b.index - a.index)) {
      const met = this.history.meet(work.key, "undo");
      const record = met.last ?? (await this.#gate.pass(() => carryOut(this, work, met)));
      if (record.outcome !== "ok") all = false;
    }
    return all;
  }

  /** Notes that the workflow's code has come to something; synchronously, in the order of its calls. */
  meet({ key, kind, argsHash }: Call): Met {
    this.#body.called();
    if (this.#divergence) throw this.#divergence;
    try {
      return this.history.meet(key, kind, argsHash);
    } catch (error) {
      return this.#diverge(error);
    }
  }

  /** The step's last word from the journal, or else what `work` comes to, once the code has come to all that is there. */
  async answer(call: Call, { last }: Met, work: () => Promise<StepRecord>): Promise<StepRecord> {
    if (last === undefined) return this.#live(call, work);
    await this.#converging(this.history.turnOf(call.key));
    this.services.notify({ type: "replayed", runId: this.runId, key: call.key });
    return last;
  }

  #live(call: Call, work: () => Promise<StepRecord>): Promise<StepRecord> {
    return this.#body.pass(async () => {
      await this.#converging(this.history.caughtUp(call.key));
      this.mayBegin();
      try {
        return await work().catch((error) => this.#inRecord(call, error));
      } finally {
        await this.#line.turnOf(call.key);
      }
    });
  }

  /** The code is told of nothing that it would not be told of again. */
  async #inRecord({ key, kind, argsHash }: Call, error: unknown): Promise<StepRecord> {
    const isHalt = error instanceof Suspension || error instanceof Breakdown;
    if (isHalt || error === this.#over) throw error;
    const value = encodeError(error);
    return this.append({ key, kind, argsHash, outcome: "failed", attempt: 1, value });
  }

  /** What the step has done is to be undone if the run fails. */
  register(work: Work, record: StepRecord): void {
    if (!work.undo) return;
    const isDone = record.outcome === "ok";
    if (!isDone && !(work.atMostOnce && isUnclear(decodeError(record.value)))) return;
    const index = this.history.indexOf(record.key) ?? this.#written++;
    this.#undos.push({ index, work: toUndo(work, isDone ? decode(record.value) : undefined) });
  }

  async append(record: NewRecord): Promise<StepRecord> {
    const { journal } = this.services;
    return this.#recorded(await journal.append(this.#terms.key, record).catch(breakDown));
  }

  async transact(
    step: Parameters<Transaction>[1],
    body: Parameters<Transaction>[2],
  ): Promise<StepRecord> {
    const { journal } = this.services;
    if (!journal.transact) {
      throw new TerminalError("NO_DATABASE", "step.tx needs a journal in a database");
    }
    const transacted = journal.transact(this.#terms.key, step, body, this.signal);
    const record = await transacted.catch((error) => {
      if (this.signal.aborted && hasCode(error, "UNKNOWN_OUTCOME")) return this.#committed(step);
      this.stillCarrying();
      return breakDown(error);
    });
    return this.#recorded(record);
  }

  /**
   * What was committing when it was to be ended may have happened, and has to be undone with the rest then.
   *
   * The fences' rows make another transaction wait for the end of that one.
   */
  async #committed(step: Parameters<Transaction>[1]): Promise<StepRecord> {
    const { key } = this.#terms;
    const never = new Error("it was not committed");
    const refuse = () => Promise.reject(never);
    const looked = this.services.journal.transact?.(key, step, refuse) ?? refuse();
    return looked.catch((error) => {
      if (error !== never && !hasCode(error, "FENCED_OUT")) throw new Breakdown(error);
      throw this.signal.reason;
    });
  }

  async pause(reason: ParkReason, span: Millis): Promise<void> {
    if (span <= 0 || this.services.skipPauses) return;
    this.#parkIfDraining(reason, span);
    if (span > this.services.inlineWait || span >= this.deadline.remaining()) {
      throw new Suspension(reason, span);
    }
    await sleep(span, this.signal);
  }

  since(at: Date): Millis {
    const now = this.possession.now.getTime() + performance.now() - this.#takenAt;
    return now - at.getTime();
  }

  stillCarrying(): void {
    const { life, key } = this.#terms;
    if (life.remaining() <= 0) throw new Breakdown(new StaleRunError(key));
    this.signal.throwIfAborted();
  }

  mayBegin(): void {
    if (!this.#isUndoing) this.#over ??= this.#reasonToStop();
    if (!this.#isUndoing && this.#over) throw this.#over;
    this.#parkIfDraining();
  }

  #parkIfDraining(reason: ParkReason = "deadline", wakeIn: Millis = 0): void {
    if (this.#terms.drain?.aborted) throw new Suspension(reason, wakeIn);
  }

  #recorded(record: StepRecord): StepRecord {
    const { key, kind, outcome } = record;
    const isAnswer = kind !== "undo" && kind !== "failure";
    if (isAnswer && (outcome === "ok" || outcome === "failed")) this.#line.enter(key);
    this.services.notify({ type: "recorded", runId: this.runId, record });
    return record;
  }

  /** The workflow is to be told that it is over. */
  #reasonToStop(): TerminalError | undefined {
    const failure = this.#recordedFailure;
    if (failure) return new TerminalError(failure.code ?? "FAILED", failure.message);
    const { possession, workflow } = this.#terms;
    if (this.#isCancelled) return new RunCancelledError(this.runId);
    const isOver = this.since(possession.startedAt) > workflow.timeout;
    return isOver ? new RunTimeoutError(this.runId, workflow.timeout) : undefined;
  }

  get #isCancelled(): boolean {
    return this.possession.cancelled || this.#cancelled;
  }

  #converging(turn: Promise<void>): Promise<void> {
    return turn.catch((error) => this.#diverge(error));
  }

  #diverge(error: unknown): never {
    if (error instanceof NonDeterminismError) this.#divergence ??= error;
    throw error;
  }
}

/** Whether what a step has failed with leaves open what it has done. */
function isUnclear({ code = "" }: ErrorInfo): boolean {
  return ["STEP_INTERRUPTED", "STEP_TIMEOUT", "LOCK_LOST"].includes(code);
}

function breakDown(error: unknown): never {
  throw new Breakdown(error);
}
