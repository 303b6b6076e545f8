import type { RecordKind, StepRecord } from "../journal/records.ts";
import { originalKey } from "../journal/superseded.ts";
import { quote } from "../lock/errors.ts";
import { eventually, nextTurn } from "../lock/event-loop.ts";
import type { Millis } from "../lock/time.ts";
import { MisuseError, nonDeterminism, Suspension } from "./errors.ts";
import { attemptKey, isFinal, isOfStep, originIn, stepKeyOf, undoneKey } from "./step-keys.ts";

/** A call of the workflow's code that the journal records. */
export interface WorkflowCommand {
  readonly key: string;
  readonly kind: RecordKind;
  readonly argsHash?: string | undefined;
}

/** The records of one step. */
export interface StepHistory {
  /** The record that ends the step. */
  readonly final: StepRecord | undefined;

  /** Returns the record of one attempt that has failed or was started. */
  attempt(outcome: "retry" | "started", attempt: number): StepRecord | undefined;

  /** The number of failed attempts. */
  readonly failures: number;
}

/**
 * The records of a run, and the order in which the workflow's code gets their answers.
 *
 * Answers are delivered in the order of their records, with a turn of the event loop between two of them: the code
 * runs as far as it can, so that concurrent branches, and races between them, end the same way in each replay. New
 * answers take their place after the recorded ones.
 */
export class History {
  /** In the order of their writes. */
  readonly #records: Map<string, StepRecord>;

  /** Steps with an attempt that has begun, and has no record of its end. */
  readonly #begun = new Set<string>();

  /** From before the run was reopened, by step. */
  readonly #earlierResults = new Map<string, EarlierResult>();
  readonly #generations = new Map<string, number>();

  /** The superseded records of each step and of its undo, in the order of their writes. */
  readonly #superseded = new Map<string, StepRecord[]>();

  /** Steps with superseded records that the code has not reached again. */
  readonly #unreached = new Set<string>();

  /** Of a fork: the runs that have executed the generations of a step. */
  readonly #origins = new Map<string, (string | undefined)[]>();
  readonly #counts = new Map<string, number>();

  /** The keys of all commands so far. */
  readonly #matched = new Set<string>();

  /** The keys of all steps with a final record, in the order of these records. */
  readonly #answers: Set<string>;

  /** The answers that are not delivered yet, in the same order. */
  readonly #undelivered: string[];

  /** How many of the undelivered answers were recorded by earlier executions. */
  #toReplay: number;

  /** Steps that were in progress in an earlier execution, and that the code has not reached again. */
  readonly #inProgress: Set<string>;

  /** The large results that were read ahead, by key. Each is dropped when it is delivered. */
  readonly #values = new Map<string, string>();

  /** Steps that wait for their answer, by key. */
  readonly #waiting = new Map<string, Waiter>();

  /** New steps, which wait for the end of the replay. */
  readonly #newcomers: Waiter[] = [];
  readonly #source: HistorySource;
  #isDelivering = false;
  #hasEnded = false;

  /** Whether too little time is left of the invocation to tell slow code from changed code. */
  #isHurried = false;

  constructor(given: readonly StepRecord[], source: HistorySource) {
    const records = given.filter(({ key }) => originalKey(key) === undefined);
    this.#source = source;
    this.#records = new Map(records.map((record) => [record.key, record]));
    const originOf = originsOf(given);
    for (const [i, record] of given.entries()) {
      this.#noteOrigin(record, originOf(record));
      this.#addSuperseded(record, i);
    }
    const steps = records.filter(isOfStep);
    this.#undelivered = steps.filter(isFinal).map(({ key }) => key);
    this.#answers = new Set(this.#undelivered);
    this.#toReplay = this.#undelivered.length;
    this.#inProgress = new Set(steps.map(stepKeyOf)).difference(this.#answers);
  }

  /** Whether the code has still to reach recorded steps. */
  get isReplaying(): boolean {
    return this.#toReplay > 0 || this.#inProgress.size > 0;
  }

  /** Returns the key of the next step with this name: "name", "name#2", "name#3" … */
  keyOf(name: string): string {
    const count = (this.#counts.get(name) ?? 0) + 1;
    this.#counts.set(name, count);
    return count === 1 ? name : `${name}#${count}`;
  }

  /** The number of records. */
  get size(): number {
    return this.#records.size;
  }

  /** The number of commands so far, which is the same in each replay. */
  get length(): number {
    return this.#matched.size;
  }

  /** Returns the keys of all records, in the order of their writes. */
  get keys(): readonly string[] {
    return [...this.#records.keys()];
  }

  /** Notes that an attempt of the step begins, or may have begun in an earlier execution. */
  begin(key: string): void {
    this.#begun.add(key);
  }

  /** Whether the step has an attempt that has begun, and has no record of its end. */
  hasBegun(key: string): boolean {
    return this.#begun.has(key);
  }

  record(key: string): StepRecord | undefined {
    return this.#records.get(key);
  }

  /** Whether the step is done, or was in progress in an earlier execution. */
  hasRecordOf(key: string): boolean {
    return this.#answers.has(key) || this.#inProgress.has(key);
  }

  /**
   * Returns the records of the command's step. Throws NON_DETERMINISM if they are of another kind or of other
   * arguments, and a MisuseError for a key that an earlier command has.
   */
  match({ key, kind, argsHash }: WorkflowCommand): StepHistory {
    if (this.#matched.has(key)) {
      throw new MisuseError(`two steps have the key ${quote(key)}; give each a key of its own`);
    }
    this.#matched.add(key);
    this.#unreached.delete(key);
    this.#inProgress.delete(key);
    const final = this.#records.get(key);
    const attempt: StepHistory["attempt"] = (outcome, number) =>
      this.#records.get(attemptKey(key, outcome, number));
    const known = final ?? attempt("retry", 1) ?? attempt("started", 1);
    if (known && known.kind !== kind) {
      throw nonDeterminism(`${quote(key)} was a ${known.kind}, and is a ${kind} now`);
    }
    if (known && known.argsHash !== argsHash) {
      throw nonDeterminism(`${quote(key)} has other arguments than before`);
    }
    let failures = 0;
    while (attempt("retry", failures + 1)) failures += 1;
    return { final, attempt, failures };
  }

  /**
   * Returns the result of a step from before the run was reopened, if it may be used again: the step was not undone, and
   * its call is the same.
   */
  earlierResult({ key, kind, argsHash }: WorkflowCommand): EarlierResult | undefined {
    const earlier = this.#earlierResults.get(key);
    const { record } = earlier ?? {};
    return record?.kind === kind && record.argsHash === argsHash ? earlier : undefined;
  }

  /** How often the step was undone, or its child failed, before the run was reopened: it needs fresh keys outside. */
  generationOf(key: string): number {
    return this.#generations.get(undoneKey(key)) ?? 0;
  }

  /**
   * Returns the run that has executed a generation of the step, or that of its undo, before it was forked. Undefined:
   * this run.
   */
  originOf(key: string, generation: number): string | undefined {
    return this.#origins.get(undoneKey(key))?.[generation];
  }

  /** A step that was repeated without being undone keeps its first origin, as it keeps its idempotency key. */
  #noteOrigin(record: StepRecord, origin: string | undefined): void {
    if (!isOfStep(record)) return;
    const key = stepKeyOf({ ...record, key: originalKey(record.key) ?? record.key });
    const origins = this.#origins.get(key) ?? [];
    const generation = this.generationOf(key);
    if (!(generation in origins)) origins[generation] = origin;
    this.#origins.set(key, origins);
  }

  #addSuperseded(record: StepRecord, index: number): void {
    const key = originalKey(record.key);
    if (key === undefined) return;
    const { kind, outcome } = record;
    const step = undoneKey(stepKeyOf({ ...record, key }));
    const all = this.#superseded.get(step) ?? [];
    all.push(record);
    this.#superseded.set(step, all);
    if (isOfStep(record)) this.#unreached.add(step);
    if (!isFinal(record)) return;
    const isRepeated = kind === "undo" ? outcome === "ok" : outcome === "failed";
    if (isRepeated) this.#earlierResults.delete(step);
    else if (isOfStep(record)) this.#earlierResults.set(step, { record, position: index });
    const isFresh = isRepeated && (kind === "undo" || kind === "child");
    if (isFresh) this.#generations.set(step, this.generationOf(step) + 1);
  }

  /** Returns the records of the step, and of its undo, that retries of the run have superseded. */
  supersededOf(key: string): readonly StepRecord[] {
    return this.#superseded.get(key) ?? [];
  }

  /** The steps that the code had reached before a retry of the run, and has not reached again. */
  get unreached(): ReadonlySet<string> {
    return this.#unreached;
  }

  /** The positions of the results that are still to be used again. */
  get reusable(): readonly number[] {
    return [...this.#earlierResults].flatMap(([key, { position }]) =>
      this.#answers.has(key) ? [] : [position],
    );
  }

  /** Adds a new record: its answer is delivered after those of all records before. */
  add(record: StepRecord): void {
    const { key } = record;
    // The caller has the large result already. A later reader loads the result from the journal.
    this.#records.set(key, isLarge(record) ? { ...record, value: undefined } : record);
    if (record.outcome !== "started") this.#begun.delete(stepKeyOf(record));
    if (!isOfStep(record) || !isFinal(record) || this.#answers.has(key)) return;
    this.#answers.add(key);
    this.#undelivered.push(key);
  }

  /**
   * Resolves when the step's answer is the next one to be delivered, and at once for a step without a final record.
   * Rejects with NON_DETERMINISM when the code does not reach an earlier recorded step.
   */
  async turnOf(key: string): Promise<void> {
    if (!this.#answers.has(key)) return;
    await this.#turn(newWaiter(key));
  }

  /** Resolves to the recorded answer of a step, as `turnOf` does. Rejects with the source's error for a large result. */
  async answerOf(record: StepRecord): Promise<StepRecord> {
    const { key } = record;
    if (!isLarge(record)) {
      await this.turnOf(key);
      return record;
    }
    await this.#turn({ ...newWaiter(key), needsValue: true });
    const value = this.#values.get(key);
    this.#values.delete(key);
    return { ...record, value };
  }

  async #turn(waiter: Waiter): Promise<void> {
    this.#waiting.set(waiter.what, waiter);
    void this.#deliver();
    await waiter.promise;
  }

  /**
   * Resolves once the code has reached all recorded steps, so that a new one may begin. Rejects with
   * NON_DETERMINISM when it does not: after a long wait, because the code may await something of its own, and after
   * a short one when the code has ended.
   */
  async caughtUp(what: string, { isEnd = false } = {}): Promise<void> {
    this.#hasEnded ||= isEnd;
    if (!this.isReplaying) return;
    const waiter = { ...newWaiter(what), isEnd };
    this.#newcomers.push(waiter);
    void this.#deliver();
    await waiter.promise;
  }

  /** Delivers answer after answer, as long as the code waits for the next one. */
  async #deliver(): Promise<void> {
    if (this.#isDelivering) return;
    this.#isDelivering = true;
    while (this.#waiting.size + this.#newcomers.length > 0) {
      if (this.isReplaying && !(await this.#nextArrives())) {
        if (this.#source.signal.aborted) {
          this.#abandon();
          break;
        }
        this.#diverge();
      }
      if (!this.isReplaying) for (const { resolve } of this.#newcomers.splice(0)) resolve();
      const waiter = this.#waiting.get(this.#undelivered[0] ?? "");
      if (!waiter) break;
      if (waiter.needsValue && !(await this.#hasValue(waiter))) break;
      this.#waiting.delete(waiter.what);
      this.#undelivered.shift();
      if (this.#toReplay > 0) this.#toReplay -= 1;
      waiter.resolve();
      await nextTurn();
    }
    this.#isDelivering = false;
  }

  /** Reads the value of the next answer, and values of answers after it. Rejects the waiter if they cannot be read. */
  async #hasValue({ what: key, reject }: Waiter): Promise<boolean> {
    if (this.#values.has(key)) return true;
    const keys: string[] = [];
    let bytes = 0;
    for (const next of this.#undelivered.slice(0, READ_AHEAD)) {
      const size = this.#records.get(next)?.valueBytes ?? 0;
      if (keys.length > 0 && bytes + size > READ_AHEAD_BYTES) break;
      if (size > 0) keys.push(next);
      bytes += size;
    }
    try {
      for (const [next, value] of await this.#source.values(keys)) this.#values.set(next, value);
      return true;
    } catch (error) {
      reject(error);
      return false;
    }
  }

  async #nextArrives(): Promise<boolean> {
    if (!this.#isNextHere) await nextTurn();
    const isHere = () => this.#isNextHere;
    const patience = this.#source.patience();
    const isShort = patience < LEAST_PATIENCE && this.#source.mayBeSlow;
    this.#isHurried = isShort && !this.#hasEnded;
    const end = performance.now() + patience;
    const left = () => Math.max(0, Math.min(SLICE, end - performance.now()));
    // In slices: the naps of one long wait would grow long as well.
    const { signal } = this.#source;
    while (left() > 0 && !this.#hasEnded && !signal.aborted)
      if (await eventually(isHere, left(), signal)) return true;
    return this.#hasEnded ? eventually(isHere, left(), signal) : isHere();
  }

  /** Whether the code has reached the next recorded answer or, after the last one, all steps in progress. */
  get #isNextHere(): boolean {
    const [next] = this.#undelivered;
    return next === undefined ? this.#inProgress.size === 0 : this.#waiting.has(next);
  }

  /** Rejects calls that would begin new work: the body waits for their ends. Recorded answers are never delivered. */
  #abandon(): void {
    const { reason } = this.#source.signal;
    for (const { isEnd, reject } of this.#newcomers.splice(0)) if (!isEnd) reject(reason);
  }

  #diverge(): void {
    const expected = this.#undelivered[0] ?? [...this.#inProgress][0] ?? "";
    const waiters = [...this.#waiting.values(), ...this.#newcomers.splice(0)];
    this.#waiting.clear();
    const came = waiters[0]?.what ?? "nothing";
    const error = this.#isHurried
      ? new Suspension("deadline", 0)
      : nonDeterminism(`${quote(expected)} was expected, and ${came} came`);
    // What is only late parks the run, also when the body has ended meanwhile.
    for (const { isEnd, reject } of waiters) if (!isEnd || !this.#isHurried) reject(error);
  }
}

/** A result from before the run was reopened, and its place among the records. */
export interface EarlierResult {
  readonly record: StepRecord;
  readonly position: number;
}

export interface HistorySource {
  /** How long the next recorded step may take to be reached. */
  patience(): Millis;

  /** Whether a step that is not reached in the last moments of an invocation may only be late. */
  readonly mayBeSlow: boolean;

  /** Aborts when the body goes on no more, with a Suspension or an EngineFailure. */
  readonly signal: AbortSignal;

  /** Reads the large results of the records with these keys. */
  values(keys: readonly string[]): Promise<ReadonlyMap<string, string>>;
}

interface Waiter extends PromiseWithResolvers<void> {
  readonly what: string;

  /** Whether the answer includes a large result, which is read before. */
  readonly needsValue?: boolean;

  /** Whether the body has ended, and waits for the end of the replay. */
  readonly isEnd?: boolean;
}

function newWaiter(what: string): Waiter {
  return { what, ...Promise.withResolvers<void>() };
}

/** Code may import a module between two steps, or its machine may be busy. */
const LEAST_PATIENCE: Millis = 250;

/** The large results of so many answers, with so many bytes, are read at once. */
const READ_AHEAD = 100;
const READ_AHEAD_BYTES = 4_194_304;

/** Also the wait after the code has ended: branches that it has not awaited may still reach recorded steps. */
const SLICE: Millis = 1_000;

/** Returns the run that has written each record of a fork: the origin in the next mark. */
function originsOf(records: readonly StepRecord[]): (record: StepRecord) => string | undefined {
  const origins = new Map<StepRecord, string>();
  let origin: string | undefined;
  for (const record of records.toReversed()) {
    if (record.kind === "fork") origin = originIn(record.key);
    else if (origin !== undefined) origins.set(record, origin);
  }
  return (record) => origins.get(record);
}

function isLarge({ valueBytes }: StepRecord): boolean {
  return valueBytes !== undefined;
}
