import type { RecordKind, StepRecord } from "../journal/journal.ts";
import { sleep } from "../lock/abort.ts";
import { checkText } from "../lock/checks.ts";
import { quote } from "../lock/errors.ts";
import { NonDeterminismError } from "./errors.ts";
import { between, turns } from "./turns.ts";

/** What the journal knows of one step. */
export interface Met {
  /** The last word on it. */
  readonly last: StepRecord | undefined;

  /** The record of one attempt that failed, or that was begun. */
  attempt(outcome: "retry" | "started", attempt: number): StepRecord | undefined;

  /** How many attempts have failed. */
  readonly failures: number;
}

/**
 * What a run had done when it was taken up again, and how much of it the workflow's code has come to.
 *
 * The answers are given in the order in which they once came, and the code runs as far as it can between two of
 * them. So branches, and races between them, go the same way again.
 */
export class History {
  readonly #records: ReadonlyMap<string, StepRecord>;
  readonly #order: ReadonlyMap<string, number>;
  readonly #counts = new Map<string, number>();
  readonly #met = new Set<string>();

  /** The steps with a last word, in the order in which those were written. */
  readonly #answers: readonly string[];
  #given = 0;

  /** Steps that were under way, and that the code has not come to again yet. */
  readonly #underWay: Set<string>;

  /** Steps that wait for their answer, by key, and new ones that wait for all answers to be given. */
  readonly #waiting = new Map<string, Waiter>();
  readonly #newcomers: Waiter[] = [];
  #isPumping = false;

  constructor(records: readonly StepRecord[]) {
    this.#records = new Map(records.map((record) => [record.key, record]));
    this.#order = new Map(records.map(({ key }, index) => [key, index]));
    const steps = records.filter(({ kind }) => kind !== "undo" && kind !== "failure");
    const isLast = ({ outcome }: StepRecord) => outcome === "ok" || outcome === "failed";
    this.#answers = steps.filter(isLast).map(({ key }) => key);
    const begun = new Set(steps.map(stepOf));
    this.#underWay = begun.difference(new Set(this.#answers));
  }

  /** Whether there is something that the code has not come to again yet. */
  get isReplaying(): boolean {
    return this.#given < this.#answers.length || this.#underWay.size > 0;
  }

  /** The key of the step that is called `name` now: the second of a name has another one than the first. */
  keyOf(name: string): string {
    const count = (this.#counts.get(name) ?? 0) + 1;
    this.#counts.set(name, count);
    return count === 1 ? name : `${name}#${count}`;
  }

  /** Where the record of this key stands in the order of all; undefined where there is none. */
  indexOf(key: string): number | undefined {
    return this.#order.get(key);
  }

  record(key: string): StepRecord | undefined {
    return this.#records.get(key);
  }

  /** Does not wait for the code to come to this step again. */
  skip(key: string): void {
    this.#underWay.delete(key);
  }

  /**
   * Notes that the code has come to this step. Throws a NonDeterminismError where it was something else, and a
   * RangeError where it has been come to already.
   */
  meet(key: string, kind: RecordKind, argsHash?: string): Met {
    if (this.#met.has(key)) throw new RangeError(`two steps have the key ${quote(key)}`);
    this.#met.add(key);
    this.#underWay.delete(key);
    const last = this.#records.get(key);
    const attempt: Met["attempt"] = (outcome, number) =>
      this.#records.get(attemptKey(key, outcome, number));
    const known = last ?? attempt("retry", 1) ?? attempt("started", 1);
    if (known && known.kind !== kind) {
      throw new NonDeterminismError(`${quote(key)} was a ${known.kind}, and is a ${kind} now`);
    }
    if (known && known.argsHash !== argsHash) {
      throw new NonDeterminismError(`${quote(key)} has other arguments than before`);
    }
    let failures = 0;
    while (attempt("retry", failures + 1)) failures += 1;
    return { last, attempt, failures };
  }

  /** Resolves when it is the turn of this step's answer. Rejects with a NonDeterminismError when it does not come. */
  async turnOf(key: string): Promise<void> {
    const waiter = newWaiter(key);
    this.#waiting.set(key, waiter);
    void this.#pump();
    await waiter.promise;
  }

  /**
   * Resolves once the code has come to all that is recorded, so that something new may be done. Rejects with a
   * NonDeterminismError where it does not.
   */
  async caughtUp(what: string): Promise<void> {
    if (!this.isReplaying) return;
    const waiter = newWaiter(what);
    this.#newcomers.push(waiter);
    void this.#pump();
    await waiter.promise;
  }

  /** Gives answer after answer, as long as somebody waits. */
  async #pump(): Promise<void> {
    if (this.#isPumping) return;
    this.#isPumping = true;
    while (this.#waiting.size + this.#newcomers.length > 0) {
      if (!(await this.#comes())) this.#diverge();
      else if (this.isReplaying) await this.#giveNext();
      else for (const { resolve } of this.#newcomers.splice(0)) resolve();
    }
    this.#isPumping = false;
  }

  async #giveNext(): Promise<void> {
    const key = this.#answers[this.#given] ?? "";
    this.#given += 1;
    this.#waiting.get(key)?.resolve();
    this.#waiting.delete(key);
    await between();
  }

  /**
   * Whether the code comes to what is next. All of its branches do so within some turns of the queue; those that
   * await something of their own besides get a moment more.
   */
  async #comes(): Promise<boolean> {
    for (let turn = 0; !this.#isNextHere && turn < MANY; turn += FEW) await turns(FEW);
    let nap = 1;
    for (let slept = 0; !this.#isNextHere && slept < MOMENT; slept += nap) {
      nap = Math.min(2 * nap, 50);
      await sleep(nap);
    }
    return this.#isNextHere;
  }

  get #isNextHere(): boolean {
    const next = this.#answers[this.#given];
    return next === undefined ? this.#underWay.size === 0 : this.#waiting.has(next);
  }

  #diverge(): void {
    const expected = this.#answers[this.#given] ?? [...this.#underWay][0] ?? "";
    const waiters = [...this.#waiting.values(), ...this.#newcomers.splice(0)];
    this.#waiting.clear();
    const came = waiters[0]?.what ?? "nothing";
    const error = new NonDeterminismError(`${quote(expected)} was expected, and ${came} came`);
    for (const { reject } of waiters) reject(error);
  }
}

interface Waiter extends PromiseWithResolvers<void> {
  readonly what: string;
}

function newWaiter(what: string): Waiter {
  return { what, ...Promise.withResolvers<void>() };
}

const FEW = 10;
const MANY = 1_000;

/** What follows ends the run, so that it is worth waiting for on a busy machine. */
const MOMENT = 1_000;

export function attemptKey(key: string, outcome: "retry" | "started", attempt: number): string {
  return `${key}@${attempt}${outcome === "started" ? " started" : ""}`;
}

/** The key of the step that a record belongs to. */
function stepOf({ key, outcome }: StepRecord): string {
  const isAttempt = outcome === "retry" || outcome === "started";
  return isAttempt ? key.replace(/@\d+(?: started)?$/, "") : key;
}

/** Throws for a name that could be taken for another record's key. */
export function checkStepName(what: string, name: unknown): asserts name is string {
  checkText(what, name, 200);
  if (name.startsWith("~") || /[#@]\d+(?: started)?$/.test(name)) {
    throw new RangeError(
      `${what} ${quote(name)} must not begin with "~", or end in "#" or "@" and a number`,
    );
  }
}

/** Throws for a name that could be one of the engine's own signals. */
export function checkSignalName(name: unknown): asserts name is string {
  checkText("signal", name, 255);
  if (name.startsWith("~")) throw new RangeError(`signal ${quote(name)} must not begin with "~"`);
}
