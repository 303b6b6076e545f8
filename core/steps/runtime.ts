import type { Journal } from "../journal/journal.ts";
import type { RunInfo } from "../journal/queries.ts";
import type { RecordPage } from "../journal/records.ts";
import { isOpen, type KeyedStart, type StartedRun, type WorkflowVersion } from "../journal/runs.ts";
import { sleep } from "../lock/abort.ts";
import { checkSignal, checkSpan, checkText } from "../lock/checks.ts";
import { toMillis } from "../lock/duration.ts";
import { quote } from "../lock/errors.ts";
import { listener } from "../lock/listener.ts";
import { checkOptionNames, type OptionNames } from "../lock/options.ts";
import { elapsedSince, instant, type Millis } from "../lock/time.ts";
import type { WakeUps } from "../lock/wake-ups.ts";
import { answerKey, checkSamePayload, publishedPrefix, type UpdateAnswer } from "./answers.ts";
import { decode, encodeResult, hashOf } from "./codec.ts";
import { codedJournal } from "./coded-journal.ts";
import type {
  ExecuteOptions,
  FinishedRun,
  ResumeOptions,
  Runtime,
  RuntimeOptions,
  StartOptions,
} from "./contract.ts";
import { Actors, type EntityHandle } from "./entity/actor.ts";
import type { Entity, EntityHandlers } from "./entity/entity.ts";
import { Envelopes } from "./envelope.ts";
import { singletonCancelled, TerminalError, unknownRun } from "./errors.ts";
import type { RuntimeServices } from "./execution.ts";
import { planFork } from "./fork.ts";
import { LockContention } from "./lock-contention.ts";
import { readRun } from "./read-run.ts";
import { supersededByRetry, supersededByUndoRetry } from "./reopen.ts";
import { batchesOf, checkWorkflow, RunExecutor } from "./run-executor.ts";
import { scheduleLog, schedulePosition, startMissedSlots } from "./scheduler.ts";
import { type Schema, validate } from "./schema.ts";
import { checkSignalName, stepName } from "./step-keys.ts";
import type { AnyWorkflow, RunOutcome, Workflow } from "./workflow.ts";

export function createRuntime(options: RuntimeOptions): Runtime {
  const { journal, locks, workflows = [], entities }: Partial<RuntimeOptions> = options ?? {};
  if (!journal?.append) {
    throw new TypeError("createRuntime needs a journal, such as { journal: shop.journal }");
  }
  if (locks && !locks.lockAll) {
    throw new TypeError("locks must be a store of locks, such as { locks: shop.locks }");
  }
  if (!Array.isArray(workflows)) {
    throw new TypeError("workflows must be a list, such as { workflows: [placeOrder] }");
  }
  if (entities !== undefined && !Array.isArray(entities)) {
    throw new TypeError("entities must be a list, such as { entities: [account] }");
  }
  checkOptionNames("createRuntime", options, RUNTIME_OPTIONS);
  return new Engine(options);
}

export const RUNTIME_OPTIONS = {
  journal: true,
  locks: true,
  codec: true,
  workflows: true,
  entities: true,
  owner: true,
  lease: true,
  inlineWait: true,
  skipPauses: true,
  lockPoll: false,
  onEvent: true,
  onError: true,
  interceptor: true,
} satisfies OptionNames<RuntimeOptions>;

const TURN = { id: true, queue: true, key: true, priority: true };
export const RUN_OPTIONS = {
  ...TURN,
  signal: true,
  drain: true,
  lockWait: true,
  onTaken: true,
} satisfies OptionNames<Omit<ExecuteOptions, "deadline">>;
export const EXECUTE_OPTIONS = {
  ...RUN_OPTIONS,
  deadline: true,
} satisfies OptionNames<ExecuteOptions>;
export const START_OPTIONS = {
  ...TURN,
  singleton: true,
  debounce: true,
} satisfies OptionNames<StartOptions>;
const RESUME_OPTIONS = {
  deadline: true,
  signal: true,
  drain: true,
  lockWait: true,
  onTaken: true,
} satisfies OptionNames<ResumeOptions>;

type OptionsOf<Call extends "signal" | "update" | "fork"> = Parameters<
  Runtime[Call]
>[Call extends "fork" ? 1 : 3];
const SIGNAL_OPTIONS = { dedupeId: true } satisfies OptionNames<OptionsOf<"signal">>;
const UPDATE_OPTIONS = {
  dedupeId: true,
  wait: true,
  signal: true,
} satisfies OptionNames<OptionsOf<"update">>;
const FORK_OPTIONS = { from: true, as: true } satisfies OptionNames<OptionsOf<"fork">>;

/** How often `run` looks for the end of its run. */
const POLL: Millis = 1_000;

type UpdateOutcome = Awaited<ReturnType<Runtime["update"]>>;

/** The first pause between two looks for the answer to an update. */
const UPDATE_POLL: Millis = 10;

class Engine implements Runtime {
  readonly journal: Journal;

  /** With decoded values. */
  readonly #journal: Journal;
  readonly #wakeUps: readonly WakeUps[];

  readonly #services: RuntimeServices;
  readonly #executor: RunExecutor;
  readonly #actors: Actors;

  constructor(options: RuntimeOptions) {
    const { journal, locks, workflows = [], owner = "lockstep", lease = 30_000, codec } = options;
    checkText("owner", owner, 200);
    const envelopes = codec && new Envelopes(codec);
    this.#wakeUps = [journal.wakeUps, locks?.wakeUps].filter((each) => each !== undefined);
    this.journal = journal;
    this.#journal = envelopes ? codedJournal(journal, envelopes) : journal;
    // Wakes the workers of other processes.
    for (const { notify } of this.#wakeUps) journal.dueListeners.add(notify);
    const leaseTtl = toMillis("lease", lease);
    checkSpan("lease", leaseTtl, 100);
    this.#services = {
      journal: this.#journal,
      owner,
      leaseTtl,
      envelopes,
      contention: new LockContention(this.#journal, locks, options.lockPoll),
      locks,
      inlineWait: toMillis("inlineWait", options.inlineWait ?? 1_000),
      skipPauses: options.skipPauses ?? false,
      notify: listener(options.onEvent),
      onError: listener(options.onError),
      interceptor: options.interceptor ?? {},
    };
    this.#executor = new RunExecutor(this.#services);
    for (const workflow of workflows) this.#executor.register(workflow);
    const onTold = () => {
      for (const notify of journal.dueListeners) notify();
    };
    const { onError } = this.#services;
    this.#actors = new Actors(this.#journal.entities, leaseTtl, { envelopes, onTold, onError });
    for (const entity of options.entities ?? []) this.#actors.register(entity);
  }

  get workflows(): readonly WorkflowVersion[] {
    return this.#executor.versions;
  }

  async execute<I, O>(
    workflow: Workflow<I, O>,
    input: I,
    options: ExecuteOptions = {},
  ): Promise<RunOutcome<O>> {
    checkOptionNames("execute", options, EXECUTE_OPTIONS);
    const prepared = await this.#executor.prepare(workflow, input, options);
    const claim = (signal?: AbortSignal) =>
      this.#journal.claim({ ...prepared.run, ttl: this.#services.leaseTtl }, signal);
    return (await this.#executor.executePrepared(prepared, claim, options)) as RunOutcome<O>;
  }

  async start<I, O>(
    workflow: Workflow<I, O>,
    input: I,
    options: StartOptions = {},
  ): Promise<RunOutcome<O>> {
    checkOptionNames("start", options, START_OPTIONS);
    const keyed = toKeyedStart(options);
    if (keyed) return this.#startKeyed(workflow, input, options, keyed);
    const prepared = await this.#executor.prepare(workflow, input, options);
    const start = async () => (await this.#journal.start([prepared.run]))[0] as StartedRun;
    // A run that is taken stops before its first step. The default reason has a stack.
    const stopped = { signal: AbortSignal.abort("started") };
    return (await this.#executor.executePrepared(prepared, start, stopped)) as RunOutcome<O>;
  }

  async #startKeyed<I, O>(
    workflow: Workflow<I, O>,
    input: I,
    options: StartOptions,
    keyed: KeyedStart,
  ): Promise<RunOutcome<O>> {
    const withId = { ...options, id: crypto.randomUUID() };
    const { run } = await this.#executor.prepare(workflow, input, withId);
    const started = await this.#journal.startKeyed(run, keyed);
    if (started.cancelled) throw singletonCancelled(started.runId);
    const { outcome } = await this.#executor.execute(started.runId, async () => started, {});
    return outcome as RunOutcome<O>;
  }

  async run<I, O>(
    workflow: Workflow<I, O>,
    input: I,
    given: Omit<ExecuteOptions, "deadline"> = {},
  ): Promise<FinishedRun<O>> {
    checkOptionNames("run", given, RUN_OPTIONS);
    const { id, queue, key, priority, ...options } = given;
    const { signal } = options;
    checkSignal(signal);
    checkWorkflow(workflow);
    const { runId } = await workflow.prepare(input, id);
    const turn = { queue, key, priority };
    let go = () => this.execute(workflow, input, { ...options, ...turn, id: runId });
    for (;;) {
      signal?.throwIfAborted();
      const outcome = await go();
      if (outcome.status !== "suspended" && outcome.status !== "busy") return outcome;
      // A run that has ended meanwhile, and whose outcome is kept no longer, is not created again.
      go = () => this.resume(runId, options) as Promise<RunOutcome<O>>;
      const wait = outcome.status === "busy" ? outcome.retryIn : outcome.wakeIn;
      await sleep(Math.min(wait, POLL), signal);
    }
  }

  async resume(runId: string, options: ResumeOptions = {}) {
    checkText("run id", runId, 255);
    checkOptionNames("resume", options, RESUME_OPTIONS);
    return this.#executor.resume(runId, options);
  }

  claimDue(query: Parameters<Runtime["claimDue"]>[0], signal?: AbortSignal) {
    return this.#executor.claimDue(query, signal);
  }

  onDue(listener: () => void): () => void {
    const { dueListeners } = this.journal;
    dueListeners.add(listener);
    const stops = this.#wakeUps.map(({ listen }) => listen(listener));
    const stopWatching = this.#services.contention.watch();
    return () => {
      dueListeners.delete(listener);
      for (const stop of stops) stop();
      stopWatching();
    };
  }

  async signal(
    runId: string,
    name: string,
    payload: unknown,
    options: Partial<OptionsOf<"signal">> = {},
  ) {
    checkOptionNames("signal", options, SIGNAL_OPTIONS);
    const { dedupeId } = options;
    checkText("run id", runId, 255);
    checkSignalName(name);
    checkText("dedupe id", dedupeId, 255);
    const what = `the payload of signal ${name}`;
    const seal = this.#services.envelopes?.sealFor(runId);
    const text = await encodeResult(what, payload, { seal });
    // The run records the payload together with the id.
    await encodeResult(what, { dedupeId, value: payload }, { seal });
    const schema = await this.#signalSchema(runId, name);
    if (schema) await validate(what, schema, payload);
    const answer = await this.#journal.signal(runId, { name, dedupeId, payload: text });
    if (answer === "missing") throw unknownRun(runId);
    return answer;
  }

  async update(
    runId: string,
    name: string,
    payload: unknown,
    options: Partial<OptionsOf<"update">> = {},
  ): Promise<UpdateOutcome> {
    checkOptionNames("update", options, UPDATE_OPTIONS);
    const { dedupeId, wait = 10_000, signal } = options;
    checkText("dedupe id", dedupeId, 255);
    checkSignal(signal);
    const limit = toMillis("wait", wait);
    const startedAt = instant();
    await this.#checkDeclared(runId, name);
    let answer = await this.signal(runId, name, payload, { dedupeId });
    if (answer !== "delivered") await this.#checkRepeated(runId, name, payload, dedupeId);
    for (let pause = UPDATE_POLL; ; pause = Math.min(2 * pause, POLL)) {
      signal?.throwIfAborted();
      const record = await this.#journal.latest(runId, answerKey(name, dedupeId));
      if (record) return toUpdateOutcome(decode(record.value));
      if (answer === "ended") return { status: "ended" };
      const left = limit - elapsedSince(startedAt);
      if (left <= 0) return { status: "pending" };
      // An answer that was recorded before the end is read after the end was seen.
      const { status } = (await this.#journal.find(runId)) ?? {};
      if (status === undefined || !isOpen(status)) answer = "ended";
      else await sleep(Math.min(pause, left), signal);
    }
  }

  /** Rejects with INVALID if the run's workflow is known and does not declare the update. */
  async #checkDeclared(runId: string, name: string): Promise<void> {
    if (this.#executor.workflows.length === 0) return;
    const run = await this.#journal.find(runId);
    const workflow = run && this.#executor.find(run);
    if (!workflow || Object.hasOwn(workflow.signals, name)) return;
    const problem = `workflow ${quote(workflow.name)} takes no update ${quote(name)}`;
    throw new TerminalError("INVALID", `${problem}; declare it in the workflow's \`signals\``);
  }

  async #checkRepeated(runId: string, name: string, payload: unknown, dedupeId: string) {
    const run = await this.#journal.show(runId, { limit: 1 });
    const first = run?.signals.find((one) => one.name === name && one.dedupeId === dedupeId);
    if (first) checkSamePayload(first, payload);
  }

  show(runId: string, page?: RecordPage) {
    return this.#journal.show(runId, page);
  }

  async query(runId: string, name: string): Promise<unknown> {
    const record = await this.#journal.latest(runId, publishedPrefix(name));
    if (record) return decode(record.value);
    if (!(await this.#journal.find(runId))) throw unknownRun(runId);
    return undefined;
  }

  async cancel(runId: string) {
    checkText("run id", runId, 255);
    const answer = await this.#journal.cancel(runId);
    if (answer === "missing") throw unknownRun(runId);
    if (answer === "requested") this.#executor.cancel(runId);
    return answer;
  }

  async retry(runId: string) {
    return this.#reopen(runId, supersededByRetry, true);
  }

  async retryUndo(runId: string) {
    return this.#reopen(runId, supersededByUndoRetry, false);
  }

  async fork(runId: string, options: Partial<OptionsOf<"fork">> = {}): Promise<string> {
    checkOptionNames("fork", options, FORK_OPTIONS);
    const { from, as = crypto.randomUUID() } = options;
    checkText("run id", runId, 255);
    checkText("from", from, 512);
    checkText("as", as, 255);
    for (;;) {
      const known = await this.#journal.find(as);
      if (known) return checkSameFork(known, runId, from);
      const run = await readRun(this.#journal, runId);
      if (!run) throw unknownRun(runId);
      const origin = { runId, epoch: run.epoch };
      const request = { runId: as, owner: this.#services.owner, ...planFork(run, from) };
      if ((await this.#journal.fork(origin, request)) === "forked") return as;
    }
  }

  async #reopen(runId: string, select: typeof supersededByRetry, isRetry: boolean) {
    checkText("run id", runId, 255);
    const run = await readRun(this.#journal, runId);
    if (!run) throw unknownRun(runId);
    const { epoch, status } = run;
    if (status === "running" || status === "parked") return "open";
    if (status === "completed") {
      throw new TerminalError("RUN_COMPLETED", `run ${quote(runId)} has completed`);
    }
    const request = { supersede: select(run), isRetry };
    return (await this.#journal.reopen({ runId, epoch }, request)) ? "reopened" : "open";
  }

  /** Reads the run unless no known workflow declares the signal. */
  async #signalSchema(runId: string, name: string): Promise<Schema | undefined> {
    const declares = ({ signals }: AnyWorkflow) => Object.hasOwn(signals, name);
    if (!this.#executor.workflows.some(declares)) return undefined;
    const run = await this.#journal.find(runId);
    if (!run) throw unknownRun(runId);
    const workflow = this.#executor.find(run);
    return workflow && declares(workflow) ? workflow.signals[name] : undefined;
  }

  entity<State, H extends EntityHandlers>(
    entity: Entity<State, H>,
    key: string,
  ): EntityHandle<State, H> {
    return this.#actors.handle(entity, key);
  }

  deliver(signal?: AbortSignal, abort?: AbortSignal): Promise<number> {
    return this.#actors.deliver(signal, abort);
  }

  startScheduled() {
    return startMissedSlots(this.#executor.workflows, {
      position: (name) => this.entity(schedulePosition, name),
      log: (name) => this.entity(scheduleLog, name),
      prepare: async (workflow, input, slotId) => {
        const id = workflow.namesRuns ? undefined : slotId;
        return this.#executor.prepare(workflow, input as never, { id });
      },
      start: async (runs) => {
        const states: StartedRun[] = [];
        for (const batch of batchesOf(runs)) states.push(...(await this.#journal.start(batch)));
        return states;
      },
    });
  }
}

function toKeyedStart({ id, singleton, debounce }: StartOptions): KeyedStart | undefined {
  if (singleton === undefined && debounce === undefined) return undefined;
  if (singleton !== undefined && debounce) {
    throw new TypeError("a start is a singleton or debounced, not both");
  }
  if (id !== undefined) {
    throw new TypeError(
      "a singleton or debounced run gets its id from the journal; leave out `id`",
    );
  }
  checkOptionNames("debounce", debounce, { key: true, for: true });
  checkText(debounce ? "debounce.key" : "singleton", debounce ? debounce.key : singleton, 255);
  if (!debounce) return { key: singleton as string };
  // Journals keep the keys of both together. A longer key would not fit.
  const key = `debounce:${hashOf(debounce.key)}`;
  return { key, quiet: toMillis("debounce.for", debounce.for) };
}

/** Returns the fork's id. Throws for a run that is not the fork of this run at this step. */
function checkSameFork({ runId, origin }: RunInfo, originId: string, from: string): string {
  const isSame =
    origin?.runId === originId && (origin.step === from || stepName(origin.step) === from);
  if (isSame) return runId;
  const problem = `run ${quote(runId)} exists, and is no fork of ${quote(originId)} at ${quote(from)}`;
  throw new TerminalError("FORK_CONFLICT", `${problem}; use another id`);
}

function toUpdateOutcome({ output, error }: UpdateAnswer & { readonly output?: unknown }) {
  return error ? ({ status: "failed", error } as const) : ({ status: "answered", output } as const);
}
