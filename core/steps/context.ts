import { fromPayload } from "../journal/ending.ts";
import type { RecordKind, Signal, StepRecord } from "../journal/journal.ts";
import { checkText } from "../lock/checks.ts";
import type { Deadline, Millis } from "../lock/time.ts";
import { carryOut, idempotencyKey } from "./attempt.ts";
import { decode, decodeError, encode, encodeError, encodeResult } from "./codec.ts";
import type { Call, Drive } from "./drive.ts";
import { type Duration, toMillis } from "./duration.ts";
import { StepFailedError } from "./errors.ts";
import { Suspension } from "./halt.ts";
import { attemptKey, checkSignalName, checkStepName } from "./history.ts";
import { mapItems } from "./map.ts";
import { outcomeOf } from "./outcome.ts";
import { type OutputOf, type Schema, validate } from "./schema.ts";
import { type AnyOptions, type Functions, toWork, type Work } from "./work.ts";
import type {
  ChildOptions,
  RunOutcome,
  StepFunction,
  TimedOut,
  Workflow,
  WorkflowContext,
} from "./workflow.ts";

/** Drives a child of this run. */
export type DriveChild = <I, O>(
  workflow: Workflow<I, O>,
  input: I,
  options: { readonly id: string; readonly signal: string },
) => Promise<RunOutcome<O>>;

/** How long a parent sleeps at the most before it looks after its child: the end of a child wakes it. */
export const CHILD_LOOK: Millis = 60_000;

/**
 * What a workflow's body is given: each call answers from the journal, or does what it says and takes note of it.
 *
 * A call that fails while nobody waits for it yet is no unhandled rejection, which would end the process: the journal
 * has it, and the branch that is to wait for it may be parked.
 */
export class Context implements WorkflowContext {
  readonly #drive: Drive;
  readonly #child: DriveChild;
  readonly step: StepFunction;

  /** The signals that calls before have had, each by name and dedupe id. */
  readonly #taken = new Set<string>();
  readonly #patches = new Map<string, Promise<boolean>>();

  constructor(drive: Drive, child: DriveChild) {
    this.#drive = drive;
    this.#child = child;
    const map = mapItems(
      (name) => this.#nameOf(name),
      drive,
      (name, key, options, functions) => this.#perform({ name, key }, "step", options, functions),
    ) as (...given: readonly unknown[]) => Promise<unknown>;
    type Rest = readonly unknown[];
    const step = (name: string, ...rest: Rest) => handled(this.#step("step", name, rest));
    this.step = Object.assign(step, {
      tx: (name: string, ...rest: Rest) => handled(this.#step("tx", name, rest)),
      map: (...given: Rest) => handled(map(...given)),
    }) as unknown as StepFunction;
  }

  get runId(): string {
    return this.#drive.runId;
  }

  get deadline(): Deadline {
    return this.#drive.deadline;
  }

  now(): Promise<Date> {
    return handled(this.#value("~now", () => new Date()));
  }

  random(): Promise<number> {
    return handled(this.#value("~random", Math.random));
  }

  uuid(): Promise<string> {
    return handled(this.#value("~uuid", () => crypto.randomUUID()));
  }

  patched(id: string): Promise<boolean> {
    const known = this.#patches.get(id) ?? handled(this.#patched(id));
    this.#patches.set(id, known);
    return known;
  }

  async #patched(id: string): Promise<boolean> {
    checkText("patch id", id, 200);
    const key = `~patched/${id}`;
    const isOld = this.#drive.history.record(key) === undefined && this.#drive.history.isReplaying;
    return isOld ? false : this.#value(key, () => true, false);
  }

  sleep(name: string, span: Duration): Promise<void> {
    return handled(this.#sleep(name, span));
  }

  async #sleep(name: string, span: Duration): Promise<void> {
    const millis = toMillis("span", span);
    const drive = this.#drive;
    const key = this.#nameOf(name);
    const call: Call = { key, kind: "sleep" };
    const met = drive.meet(call);
    await drive.answer(call, met, async () => {
      const begun = met.attempt("started", 1) ?? (await drive.append(begin(key, "sleep", millis)));
      await drive.pause("sleep", decode<number>(begun.value) - drive.since(begun.at));
      return drive.append(done(key, "sleep", millis));
    });
  }

  waitFor<S extends Schema>(signal: string, schema: S): Promise<OutputOf<S>>;
  waitFor<S extends Schema>(
    signal: string,
    schema: S,
    options: { readonly timeout: Duration },
  ): Promise<OutputOf<S> | TimedOut>;
  waitFor<S extends Schema>(
    signal: string,
    schema: S,
    options?: { readonly timeout: Duration },
  ): Promise<OutputOf<S> | TimedOut> {
    return handled(this.#waitFor(signal, schema, options));
  }

  async #waitFor<S extends Schema>(
    signal: string,
    schema: S,
    options?: { readonly timeout: Duration },
  ): Promise<OutputOf<S> | TimedOut> {
    checkSignalName(signal);
    const timeout = options && toMillis("timeout", options.timeout);
    const drive = this.#drive;
    const key = drive.history.keyOf(`~signal/${signal}`);
    const call: Call = { key, kind: "signal" };
    const met = drive.meet(call);
    const record = await drive.answer(call, met, async () => {
      const came = this.#take(signal);
      if (came) return drive.append(await received(key, came, schema));
      if (timeout === undefined) throw new Suspension("signal", Number.POSITIVE_INFINITY);
      const begun =
        met.attempt("started", 1) ?? (await drive.append(begin(key, "signal", timeout)));
      const left = decode<number>(begun.value) - drive.since(begun.at);
      if (left > 0) throw new Suspension("signal", left);
      return drive.append(done(key, "signal", { value: { timedOut: true } }));
    });
    const { dedupeId, value } = decode<Received>(record.value);
    if (dedupeId !== undefined) this.#taken.add(idOf(signal, dedupeId));
    if (record.outcome === "ok") return value as OutputOf<S>;
    throw new StepFailedError(key, decodeError(encode(value)));
  }

  child<I, O>(
    name: string,
    workflow: Workflow<I, O>,
    input: I,
    options: ChildOptions = {},
  ): Promise<O> {
    return handled(this.#runChild(name, workflow, input, options));
  }

  async #runChild<I, O>(
    name: string,
    workflow: Workflow<I, O>,
    input: I,
    options: ChildOptions,
  ): Promise<O> {
    const drive = this.#drive;
    const key = this.#nameOf(name);
    const { id = idempotencyKey(this.runId, key) } = options;
    const call: Call = { key, kind: "child" };
    const record = await drive.answer(call, drive.meet(call), async () => {
      const signal = `~child/${key}`;
      const outcome =
        this.#told(signal, id) ?? (await this.#child(workflow, input, { id, signal }));
      if (outcome.status === "completed") return drive.append(done(key, "child", outcome.output));
      if (outcome.status === "failed") {
        const value = encode(outcome.error);
        return drive.append({ ...done(key, "child", undefined), outcome: "failed", value });
      }
      const wakeIn = outcome.status === "busy" ? outcome.retryIn : outcome.wakeIn;
      throw new Suspension("child", Math.min(wakeIn, CHILD_LOOK));
    });
    return this.#resultOf(key, record);
  }

  #nameOf(name: string): string {
    checkStepName("step name", name);
    return this.#drive.history.keyOf(name);
  }

  /** What a child has said of its end: it may be forgotten by now, and must not be begun again. */
  #told(name: string, runId: string): RunOutcome<unknown> | undefined {
    const { signals } = this.#drive.possession;
    const said = signals.find((signal) => signal.name === name && signal.dedupeId === runId);
    return said && outcomeOf(runId, fromPayload(said.payload));
  }

  async #step(kind: "step" | "tx", name: string, rest: readonly unknown[]): Promise<unknown> {
    const hasOptions = typeof rest[0] === "object" && rest[0] !== null;
    const [options, fn, undo] = hasOptions ? rest : [{}, ...rest];
    const { key: own } = options as AnyOptions;
    if (own !== undefined) checkStepName("key", own);
    const key = own ?? this.#nameOf(name);
    return this.#perform({ name, key }, kind, options as AnyOptions, { fn, undo } as Functions);
  }

  async #perform(
    { name, key }: Pick<Work, "name" | "key">,
    kind: "step" | "tx",
    options: AnyOptions,
    functions: Functions,
  ): Promise<unknown> {
    const drive = this.#drive;
    const work = toWork({ name, key }, kind, options, functions);
    const met = drive.meet(work);
    if (met.last) drive.register(work, met.last);
    const record = await drive.answer(work, met, async () => {
      const written = await carryOut(drive, work, met);
      drive.register(work, written);
      return written;
    });
    return this.#resultOf(key, record);
  }

  #resultOf<T>(key: string, record: StepRecord): T {
    if (record.outcome === "ok") return decode<T>(record.value);
    throw new StepFailedError(key, decodeError(record.value));
  }

  /** Something that is not the same twice. */
  async #value<T>(name: string, make: () => T, counted = true): Promise<T> {
    const drive = this.#drive;
    const key = counted ? drive.history.keyOf(name) : name;
    const write = () => drive.append(done(key, "value", make()));
    const call: Call = { key, kind: "value" };
    return this.#resultOf(key, await drive.answer(call, drive.meet(call), write));
  }

  /** At once, so that no other call has it as well. */
  #take(name: string): Signal | undefined {
    const { signals } = this.#drive.possession;
    const next = signals.find(
      (signal) => signal.name === name && !this.#taken.has(idOf(name, signal.dedupeId)),
    );
    if (next) this.#taken.add(idOf(name, next.dedupeId));
    return next;
  }
}

function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}

function idOf(signal: string, dedupeId: string): string {
  return JSON.stringify([signal, dedupeId]);
}

interface Received {
  /** Undefined: no signal came in time. */
  readonly dedupeId?: string;
  readonly value: unknown;
}

/** Whatever is wrong with it, the signal is used up. */
async function received(key: string, { dedupeId, payload, name }: Signal, schema: Schema) {
  const what = `the payload of signal ${name}`;
  try {
    const value = await validate(what, schema, decode(payload));
    const text = encodeResult(what, { dedupeId, value });
    return { ...done(key, "signal", undefined), value: text };
  } catch (error) {
    const value = decode(encodeError(error));
    return { ...done(key, "signal", { dedupeId, value }), outcome: "failed" as const };
  }
}

function done(key: string, kind: RecordKind, value: unknown) {
  return { key, kind, outcome: "ok" as const, attempt: 1, value: encode(value) };
}

/** How long something lasts, counted from when this is written. */
function begin(key: string, kind: RecordKind, millis: Millis) {
  const begun = done(attemptKey(key, "started", 1), kind, millis);
  return { ...begun, outcome: "started" as const };
}
