import { encodeChildResult } from "../journal/child-result.ts";
import type {
  ClaimedRun,
  ContinueRequest,
  DueRun,
  Journal,
  KeyedStart,
  NewRun,
  RecordPage,
  RunClaimResult,
  RunInfo,
  RunKey,
  RunNotFound,
  RunStatus,
  StartedRun,
  WorkflowVersion,
} from "../journal/journal.ts";
import { StaleRunError } from "../journal/journal.ts";
import { DEFAULT_QUEUE } from "../journal/turn-order.ts";
import { sleep } from "../lock/abort.ts";
import { checkSignal, checkSpan, checkText, describeValue, leftUntil } from "../lock/checks.ts";
import { toMillis } from "../lock/duration.ts";
import { quote } from "../lock/errors.ts";
import { Lease } from "../lock/lease.ts";
import { listener } from "../lock/listener.ts";
import { type Deadline, elapsedSince, type Instant, instant, type Millis } from "../lock/time.ts";
import type { WakeUps } from "../lock/wake-ups.ts";
import { answerKey, publishedPrefix, type UpdateAnswer } from "./answers.ts";
import type { ChildStarter, NewChild } from "./children.ts";
import { decode, decodeError, encode, encodeInfo, encodeResult } from "./codec.ts";
import { codedJournal } from "./coded-journal.ts";
import { Context } from "./context.ts";
import type {
  DueExecution,
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
import {
  EngineFailure,
  inputConflict,
  runPoisoned,
  TerminalError,
  toErrorInfo,
  unknownRun,
  unknownWorkflow,
} from "./errors.ts";
import { type Blocked, type ExecutionResult, executeRun } from "./execute.ts";
import { type ExecutionOptions, RunExecution, type RuntimeServices } from "./execution.ts";
import { planFork } from "./fork.ts";
import { checkSignalName, stepName } from "./history.ts";
import { intercept } from "./interceptor.ts";
import { LockContention } from "./lock-contention.ts";
import { readRecords, readRun } from "./read-run.ts";
import { supersededByRetry, supersededByUndoRetry } from "./reopen.ts";
import { schedulePosition, startMissedSlots } from "./scheduler.ts";
import { type Schema, validate } from "./schema.ts";
import { type AnyWorkflow, type RunOutcome, toRunOutcome, type Workflow } from "./workflow.ts";

export function createRuntime(options: RuntimeOptions): Runtime {
  if (!options?.journal) {
    throw new TypeError("createRuntime needs a journal, such as { journal: shop.journal }");
  }
  return new Engine(options);
}

/** How often `run` looks for the end of its run. */
const POLL: Millis = 1_000;

/** The pauses of a blocked run: short enough for a rollback, and rare enough for a bug of a week. */
const FIRST_BLOCK: Millis = 5_000;
const LONGEST_BLOCK: Millis = 600_000;

/** The most children that are claimed and executed at a time. */
const CHILDREN_AT_ONCE = 8;

/** The most runs, and the most characters of their inputs, that are started with one call of the journal. */
const PACKET_RUNS = 200;
const PACKET_LENGTH = 1_048_576;

type UpdateOutcome = Awaited<ReturnType<Runtime["update"]>>;

/** The first pause between two looks for the answer to an update. */
const UPDATE_POLL: Millis = 10;

class Engine implements Runtime {
  readonly journal: Journal;

  /** With decoded values. */
  readonly #journal: Journal;
  readonly #wakeUps: readonly WakeUps[];
  readonly #owner: string;
  readonly #leaseTtl: Millis;
  readonly #services: RuntimeServices;
  readonly #workflows = new Map<string, AnyWorkflow>();
  readonly #actors: Actors;

  /** The executions in this process, by run id. */
  readonly #executions = new Map<string, RunExecution>();

  constructor(options: RuntimeOptions) {
    const { journal, locks, workflows = [], owner = "lockstep", lease = 30_000, codec } = options;
    checkText("owner", owner, 200);
    const envelopes = codec && new Envelopes(codec);
    this.#wakeUps = [journal.wakeUps, locks?.wakeUps].filter((each) => each !== undefined);
    this.journal = journal;
    this.#journal = envelopes ? codedJournal(journal, envelopes) : journal;
    // Wakes the workers of other processes.
    for (const { notify } of this.#wakeUps) journal.dueListeners.add(notify);
    this.#owner = owner;
    this.#leaseTtl = toMillis("lease", lease);
    checkSpan("lease", this.#leaseTtl, 100);
    this.#services = {
      journal: this.#journal,
      envelopes,
      contention: new LockContention(this.#journal, locks, options.lockPoll),
      locks,
      inlineWait: toMillis("inlineWait", options.inlineWait ?? 1_000),
      skipPauses: options.skipPauses ?? false,
      notify: listener(options.onEvent),
      onError: listener(options.onError),
      interceptor: options.interceptor ?? {},
    };
    for (const workflow of workflows) this.#register(workflow);
    const onTold = () => {
      for (const notify of journal.dueListeners) notify();
    };
    this.#actors = new Actors(this.#journal.entities, this.#leaseTtl, { envelopes, onTold });
    for (const entity of options.entities ?? []) this.#actors.register(entity);
  }

  get workflows(): readonly WorkflowVersion[] {
    return [...this.#workflows.values()].map(({ name, version }) => ({ workflow: name, version }));
  }

  async execute<I, O>(
    workflow: Workflow<I, O>,
    input: I,
    options: ExecuteOptions = {},
  ): Promise<RunOutcome<O>> {
    const { run, onConflict } = await this.#prepare(workflow, input, options);
    const claim = () => this.#journal.claim({ ...run, ttl: this.#leaseTtl });
    const claimed = await this.#executeOrTake(run.runId, onConflict, claim, options);
    return (await this.#withChildren(claimed, options)) as RunOutcome<O>;
  }

  async start<I, O>(
    workflow: Workflow<I, O>,
    input: I,
    options: StartOptions = {},
  ): Promise<RunOutcome<O>> {
    const keyed = toKeyedStart(options);
    if (keyed) return this.#startKeyed(workflow, input, options, keyed);
    const { run, onConflict } = await this.#prepare(workflow, input, options);
    const start = async () => (await this.#journal.start([run]))[0] as StartedRun;
    // A run that is taken stops before its first step.
    const stopped = { signal: AbortSignal.abort() };
    const started = await this.#executeOrTake(run.runId, onConflict, start, stopped);
    return started.outcome as RunOutcome<O>;
  }

  async #startKeyed<I, O>(
    workflow: Workflow<I, O>,
    input: I,
    options: StartOptions,
    keyed: KeyedStart,
  ): Promise<RunOutcome<O>> {
    const withId = { ...options, id: crypto.randomUUID() };
    const { run } = await this.#prepare(workflow, input, withId);
    const started = await this.#journal.startKeyed(run, keyed);
    const { outcome } = await this.#execute(started.runId, async () => started, {});
    return outcome as RunOutcome<O>;
  }

  async run<I, O>(
    workflow: Workflow<I, O>,
    input: I,
    { id, signal, ...turn }: Omit<ExecuteOptions, "deadline"> = {},
  ): Promise<FinishedRun<O>> {
    checkWorkflow(workflow);
    const { runId } = await workflow.prepare(input, id);
    const options = { ...turn, id: runId, signal };
    for (;;) {
      signal?.throwIfAborted();
      const outcome = await this.execute(workflow, input, options);
      if (outcome.status !== "suspended" && outcome.status !== "busy") return outcome;
      const wait = outcome.status === "busy" ? outcome.retryIn : outcome.wakeIn;
      await sleep(Math.min(wait, POLL), signal);
    }
  }

  async resume(runId: string, options: ResumeOptions = {}) {
    checkText("run id", runId, 255);
    return this.#withChildren(await this.#take(runId, options), options);
  }

  async claimDue(
    query: Parameters<Runtime["claimDue"]>[0],
    signal?: AbortSignal,
  ): Promise<readonly DueExecution[]> {
    const sentAt = instant();
    const runs = await this.#journal.claimDue(this.#dueQuery(query), signal);
    return runs.map((claimed) => ({
      runId: claimed.runId,
      execute: async (options = {}) => (await this.#executeTaken(claimed, sentAt, options)).outcome,
    }));
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

  #dueQuery<Q extends Parameters<Runtime["claimDue"]>[0]>(query: Q) {
    const { queues = this.#queues() } = query;
    const { workflows } = this;
    return { ...query, queues, workflows, owner: this.#owner, ttl: this.#leaseTtl };
  }

  #queues(): readonly string[] {
    return [...new Set([DEFAULT_QUEUE, ...this.#workflows.values().map(({ queue }) => queue)])];
  }

  async signal(
    runId: string,
    name: string,
    payload: unknown,
    { dedupeId }: { readonly dedupeId: string },
  ) {
    checkText("run id", runId, 255);
    checkSignalName(name);
    checkText("dedupe id", dedupeId, 255);
    const what = `the payload of signal ${name}`;
    // The run records the payload together with the id.
    await encodeResult(
      what,
      { dedupeId, value: payload },
      { seal: this.#services.envelopes?.sealFor(runId) },
    );
    const schema = await this.#signalSchema(runId, name);
    if (schema) await validate(what, schema, payload);
    const answer = await this.#journal.signal(runId, { name, dedupeId, payload: encode(payload) });
    if (answer === "missing") throw unknownRun(runId);
    return answer;
  }

  async update(
    runId: string,
    name: string,
    payload: unknown,
    { dedupeId, wait = 10_000, signal }: Parameters<Runtime["update"]>[3],
  ): Promise<UpdateOutcome> {
    const limit = toMillis("wait", wait);
    const startedAt = instant();
    let answer = await this.signal(runId, name, payload, { dedupeId });
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
    if (answer === "requested") this.#executions.get(runId)?.cancel();
    return answer;
  }

  async retry(runId: string) {
    return this.#reopen(runId, supersededByRetry, true);
  }

  async retryUndo(runId: string) {
    return this.#reopen(runId, supersededByUndoRetry, false);
  }

  async fork(
    runId: string,
    { from, as = crypto.randomUUID() }: Parameters<Runtime["fork"]>[1],
  ): Promise<string> {
    checkText("run id", runId, 255);
    checkText("from", from, 512);
    checkText("as", as, 255);
    for (;;) {
      const known = await this.#journal.find(as);
      if (known) return checkSameFork(known, runId, from);
      const run = await readRun(this.#journal, runId);
      if (!run) throw unknownRun(runId);
      const origin = { runId, epoch: run.epoch };
      const request = { runId: as, owner: this.#owner, ...planFork(run, from) };
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
    if (![...this.#workflows.values()].some(declares)) return undefined;
    const run = await this.#journal.find(runId);
    if (!run) throw unknownRun(runId);
    const workflow = this.#workflows.get(idOf(run.workflow, run.version));
    return workflow && declares(workflow) ? workflow.signals[name] : undefined;
  }

  entity<State, H extends EntityHandlers>(
    entity: Entity<State, H>,
    key: string,
  ): EntityHandle<State, H> {
    return this.#actors.handle(entity, key);
  }

  deliver(signal?: AbortSignal): Promise<number> {
    return this.#actors.deliver(signal);
  }

  startScheduled() {
    return startMissedSlots<NewRun>([...this.#workflows.values()], {
      position: (name) => this.entity(schedulePosition, name),
      prepare: async (workflow, input, id) =>
        (await this.#prepare(workflow, input as never, { id })).run,
      start: async (runs) => {
        for (const packet of packetsOf(runs)) await this.#journal.start(packet);
      },
    });
  }

  async #prepare<I, O>(
    workflow: Workflow<I, O>,
    input: I,
    { id, queue, key, priority }: StartOptions,
  ): Promise<PreparedRun> {
    this.#register(workflow);
    const { runId, turn, inputHash, onConflict, ...prepared } = await workflow.prepare(input, id);
    const { name, version } = workflow;
    const seal = this.#services.envelopes?.sealFor(runId);
    const run = {
      runId,
      owner: this.#owner,
      workflow: name,
      version,
      input: await encodeResult(`the input of ${name}`, prepared.input, { seal }),
      inputHash,
      turn: {
        queue: queue ?? turn.queue,
        key: key ?? turn.key,
        priority: priority ?? turn.priority,
      },
    };
    return { run, onConflict };
  }

  /** Executes a claimed run. A run with another input is taken, if its workflow says so. */
  #executeOrTake(
    runId: string,
    onConflict: PreparedRun["onConflict"],
    claim: () => Promise<RunClaimResult>,
    options: ResumeOptions,
  ): Promise<Execution> {
    const claimOrTake = async () => {
      const claimed = await claim();
      const isExisting = claimed.kind === "conflict" && onConflict === "return-existing";
      return isExisting ? this.#takeLease(runId) : claimed;
    };
    return this.#execute(runId, claimOrTake, options);
  }

  #take(runId: string, options: ResumeOptions): Promise<Execution> {
    return this.#execute(runId, () => this.#takeLease(runId), options);
  }

  #takeLease(runId: string): Promise<RunClaimResult | RunNotFound> {
    return this.#journal.take({ runId, owner: this.#owner, ttl: this.#leaseTtl });
  }

  /** Executes the due children of a run, and the run itself again, until none of them can go on: it needs no worker. */
  async #withChildren(first: Execution, options: ResumeOptions): Promise<RunOutcome<unknown>> {
    let { outcome, awaitsChildren, isDue } = first;
    let wakeIn = Number.POSITIVE_INFINITY;
    while (outcome.status === "suspended" && (awaitsChildren || isDue) && !isOver(options)) {
      if (isDue) {
        ({ outcome, awaitsChildren, isDue } = await this.#take(outcome.runId, options));
        continue;
      }
      const children = await this.#executeChildren(outcome.runId, options);
      for (const child of children) {
        if (child.status === "suspended") wakeIn = Math.min(wakeIn, child.wakeIn);
      }
      const isStuck = !children.some(hasGoneOn);
      if (isStuck) return { ...outcome, wakeIn: Math.min(outcome.wakeIn, wakeIn) };
      ({ outcome, awaitsChildren, isDue } = await this.#take(outcome.runId, options));
    }
    return outcome;
  }

  /** Executes some of the due children of a run. Rejects with the first error when all of them have settled. */
  async #executeChildren(parent: string, { onTaken: _, ...options }: ResumeOptions) {
    const sentAt = instant();
    const query = this.#dueQuery({ limit: CHILDREN_AT_ONCE, parent });
    const children = await this.#journal.claimDue(query);
    const settled = await Promise.allSettled(
      children.map(async (claimed) =>
        this.#withChildren(await this.#executeTaken(claimed, sentAt, options), options),
      ),
    );
    return settled.map((result) => {
      if (result.status === "rejected") throw result.reason;
      return result.value;
    });
  }

  async #execute(
    runId: string,
    claim: () => Promise<RunClaimResult | RunNotFound>,
    options: ResumeOptions,
  ): Promise<Execution> {
    const busy = (retryIn: Millis): Execution => ({ outcome: { runId, status: "busy", retryIn } });
    checkSignal(options.signal);
    if (leftUntil(options.deadline) <= 0) return busy(0);
    const sentAt = instant();
    const claimed = await claim();
    if (claimed.kind === "missing") throw unknownRun(runId);
    if (claimed.kind === "conflict") throw inputConflict(runId);
    if (claimed.kind === "busy") return busy(claimed.retryIn);
    if (claimed.kind === "ended") {
      this.#services.notify({ type: "answered", runId, status: claimed.ending.status });
      return { outcome: toRunOutcome(runId, claimed.ending) };
    }
    if (claimed.kind === "blocked") {
      const { error, retryIn } = claimed;
      return { outcome: { runId, status: "blocked", error: decodeError(error), retryIn } };
    }
    if (claimed.kind === "parked") {
      const { reason, wakeIn, awaitsChildren } = claimed;
      return { outcome: { runId, status: "suspended", reason, wakeIn }, awaitsChildren };
    }
    return this.#executeTaken({ ...claimed, runId }, sentAt, options);
  }

  /** Executes a claimed run. */
  async #executeTaken(
    claimed: DueRun,
    sentAt: Instant,
    { deadline = FOREVER, signal, drain, lockWait, onTaken }: ResumeOptions,
  ): Promise<Execution> {
    const { notify, interceptor } = this.#services;
    const { runId, epoch } = claimed;
    const key = { runId, epoch };
    const workflow = this.#workflows.get(idOf(claimed.workflow, claimed.version));
    if (!workflow) {
      await this.#park(key, claimed, { reason: "deadline", wakeIn: 0 });
      throw unknownWorkflow(claimed.workflow, claimed.version);
    }
    const run = { runId, workflow: workflow.name, crashes: claimed.crashes };
    notify({ type: "taken", ...run, takenOver: claimed.takenOver });
    onTaken?.();
    const renewal = this.#renew(key, sentAt);
    try {
      const execution = { key, workflow, claimed, deadline, signal, drain, lockWait, renewal };
      const hook = interceptor.run?.bind(interceptor);
      let executed: Execution | undefined;
      const body = async () => {
        executed = await this.#executeClaimed(execution);
        return executed.outcome;
      };
      const outcome = await intercept(hook, run, body);
      return { ...executed, outcome };
    } catch (error) {
      // Another process has claimed the run.
      if (!(error instanceof StaleRunError)) throw error;
      return { outcome: { runId, status: "busy", retryIn: this.#leaseTtl } };
    } finally {
      renewal.lease.end("released");
    }
  }

  /** Executes the run, then parks it or ends it. */
  async #executeClaimed(options: ClaimedExecution): Promise<Execution> {
    const { key, workflow, claimed, renewal } = options;
    const { runId } = key;
    const result = await this.#resultOf(options);
    // Renewals end first: a late one must not take back the run.
    renewal.lease.end("released");
    if ("block" in result) return this.#block(options, result);
    if ("park" in result) {
      await this.#park(key, claimed, result.park);
      const { reason, wakeIn, children } = result.park;
      const awaitsChildren = children !== undefined;
      return { outcome: { runId, status: "suspended", reason, wakeIn }, awaitsChildren };
    }
    if ("continue" in result) return this.#continue(options, result.continue);
    const { keep } = workflow;
    const end = { ...result.finish, keep, parent: claimed.parent?.runId };
    const answer = await this.#journal.finish(key, end);
    if (answer === "cancelled") return this.#undoCancelled(options);
    const { status } = result.finish;
    this.#services.notify({ type: "ended", runId, workflow: workflow.name, status });
    return { outcome: toRunOutcome(runId, result.finish) };
  }

  /** Begins the next history of the run, which is due at once. */
  async #continue(
    { key, workflow, claimed }: ClaimedExecution,
    request: Omit<ContinueRequest, "part">,
  ): Promise<Execution> {
    const { runId } = key;
    const { part } = claimed;
    const answer = await this.#journal.continueAsNew(key, { ...request, part });
    const [reason, wakeIn] = ["deadline", 0] as const;
    this.#services.notify(
      answer === "continued"
        ? { type: "continued", runId, workflow: workflow.name, part: part + 1 }
        : { type: "parked", runId, reason, wakeIn },
    );
    return { outcome: { runId, status: "suspended", reason, wakeIn }, isDue: true };
  }

  /** Executes again a run that was cancelled during its last step: its completion was refused. */
  #undoCancelled({ key, deadline, signal, drain }: ClaimedExecution): Promise<Execution> {
    this.#services.notify({ type: "parked", runId: key.runId, reason: "deadline", wakeIn: 0 });
    const options = { deadline, signal, drain };
    return this.#take(key.runId, options);
  }

  async #resultOf({ renewal, ...options }: ClaimedExecution): Promise<ExecutionResult> {
    const { key, workflow, claimed, signal, drain } = options;
    const { crashes, blocks } = claimed;
    // Each block grants one more try.
    if (crashes >= workflow.maxCrashes + blocks) {
      return { block: runPoisoned(key.runId, crashes), hasProgress: false };
    }
    if (signal?.aborted || drain?.aborted) return { park: { reason: "deadline", wakeIn: 0 } };
    const records = await readRecords(this.#journal, key.runId, claimed);
    const execution = new RunExecution({
      ...options,
      records,
      services: this.#services,
      lease: renewal.lease,
    });
    renewal.execution = execution;
    this.#executions.set(key.runId, execution);
    try {
      return await executeRun(execution, new Context(execution, this.#childStarter(key)));
    } finally {
      execution.inProgress[Symbol.dispose]();
      if (this.#executions.get(key.runId) === execution) this.#executions.delete(key.runId);
    }
  }

  #childStarter(key: RunKey): ChildStarter {
    const { runId: parentId } = key;
    return {
      register: (workflow) => this.#register(workflow),
      start: async (workflow, children, signal) => {
        const parent = { runId: parentId, signal };
        const prepare = async ({ id, input, detached }: NewChild<unknown>): Promise<NewRun> => {
          const any = workflow as Workflow<unknown, unknown>;
          const { run } = await this.#prepare(any, input, { id });
          return { ...run, parent, detached };
        };
        return this.#startRuns(await Promise.all(children.map(prepare)), key);
      },
      cancel: async () => {
        const { open, compensated } = await this.#journal
          .cancelChildren(parentId)
          .catch(failEngine);
        for (const runId of open) this.#executions.get(runId)?.cancel();
        return { open: open.length, compensated };
      },
      tell: async (name, dedupeId, result) => {
        const payload = encodeChildResult(result);
        await this.#journal.signal(parentId, { name, dedupeId, payload }).catch(failEngine);
      },
    };
  }

  /** A failure of the journal does not fail the run. */
  async #startRuns(runs: readonly NewRun[], parent: RunKey) {
    const states: Exclude<StartedRun, { readonly kind: "conflict" }>[] = [];
    for (const packet of packetsOf(runs)) {
      const started = await this.#journal.start(packet, parent).catch(failEngine);
      for (const [i, state] of started.entries()) {
        if (state.kind === "conflict") throw inputConflict(packet[i]?.runId ?? "");
        states.push(state);
      }
    }
    return states;
  }

  async #park(key: RunKey, { signalsSeen }: ClaimedRun, request: Parked): Promise<void> {
    await this.#journal.park(key, { ...request, signalsSeen });
    const { reason, wakeIn } = request;
    this.#services.notify({ type: "parked", runId: key.runId, reason, wakeIn });
  }

  async #block(
    { key, workflow, claimed }: ClaimedExecution,
    { block, hasProgress }: Blocked,
  ): Promise<Execution> {
    const { runId } = key;
    const blocks = hasProgress ? 1 : claimed.blocks + 1;
    const retryIn = Math.min(FIRST_BLOCK * 2 ** (blocks - 1), LONGEST_BLOCK);
    const error = toErrorInfo(block);
    await this.#journal.block(key, { error: encodeInfo(error), blocks, retryIn });
    this.#services.notify({ type: "blocked", runId, workflow: workflow.name, error, retryIn });
    return { outcome: { runId, status: "blocked", error, retryIn } };
  }

  /** Renews the run's lease until the lease ends. */
  #renew(key: RunKey, sentAt: Instant): LeaseRenewal {
    const renewal: LeaseRenewal = {
      execution: undefined,
      lease: new Lease({
        names: [key.runId],
        ttl: this.#leaseTtl,
        sentAt,
        autoRenew: true,
        maxHold: Number.POSITIVE_INFINITY,
        notify: () => {},
        toLossError: () => new StaleRunError(key),
        renew: async (ttl, signal) => {
          const grant = { ttl, sentAt: instant() };
          const inProgress = renewal.execution?.inProgress.report();
          const renewed = await this.#journal.renew(key, ttl, signal, inProgress);
          if (renewed?.cancelled) renewal.execution?.cancel();
          return renewed && grant;
        },
      }),
    };
    return renewal;
  }

  #register(workflow: AnyWorkflow): void {
    checkWorkflow(workflow);
    const { name, version } = workflow;
    const id = idOf(name, version);
    const known = this.#workflows.get(id);
    if (known && known !== workflow) {
      throw new TypeError(`two workflows have the name ${name} and the version ${version}`);
    }
    this.#workflows.set(id, workflow);
  }
}

function checkWorkflow(workflow: AnyWorkflow): void {
  if (typeof workflow?.prepare === "function") return;
  throw new TypeError(`a workflow is made by workflow(…), and is not ${describeValue(workflow)}`);
}

type Parked = Extract<ExecutionResult, { readonly park: unknown }>["park"];

interface LeaseRenewal {
  readonly lease: Lease;

  /** Undefined before the run's records are read. */
  execution: RunExecution | undefined;
}

type ClaimedExecution = Omit<ExecutionOptions, "services" | "lease" | "records"> & {
  readonly renewal: LeaseRenewal;
};

interface PreparedRun extends Pick<Awaited<ReturnType<AnyWorkflow["prepare"]>>, "onConflict"> {
  readonly run: NewRun;
}

interface Execution {
  readonly outcome: RunOutcome<unknown>;

  /** Whether the run is parked for children. */
  readonly awaitsChildren?: boolean;

  /** Whether the run goes on at once, in a new history. */
  readonly isDue?: boolean;
}

/** Whether a child has ended, or waits for something: resuming it again at once would be of no use. */
function hasGoneOn(outcome: RunOutcome<unknown>): boolean {
  return outcome.status !== "busy" && !(outcome.status === "suspended" && outcome.wakeIn <= 0);
}

function isOver({ deadline = FOREVER, signal, drain }: ResumeOptions): boolean {
  return deadline.remaining() <= 0 || signal?.aborted === true || drain?.aborted === true;
}

/** Splits runs into packets that the journal starts with one call. */
function packetsOf(runs: readonly NewRun[]): readonly (readonly NewRun[])[] {
  const packets: NewRun[][] = [];
  let length = Number.POSITIVE_INFINITY;
  for (const run of runs) {
    const last = packets.at(-1);
    length += run.input.length;
    if (last && last.length < PACKET_RUNS && length <= PACKET_LENGTH) {
      last.push(run);
    } else {
      packets.push([run]);
      length = run.input.length;
    }
  }
  return packets;
}

function failEngine(error: unknown): never {
  throw new EngineFailure(error);
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
  return debounce
    ? { key: debounce.key, quiet: toMillis("debounce.for", debounce.for) }
    : { key: singleton as string };
}

const FOREVER: Deadline = { remaining: () => Number.POSITIVE_INFINITY };

function idOf(workflow: string, version: number): string {
  return JSON.stringify([workflow, version]);
}

/** Returns the fork's id. Throws for a run that is not the fork of this run at this step. */
function checkSameFork({ runId, origin }: RunInfo, originId: string, from: string): string {
  const isSame =
    origin?.runId === originId && (origin.step === from || stepName(origin.step) === from);
  if (isSame) return runId;
  const problem = `run ${quote(runId)} exists, and is no fork of ${quote(originId)} at ${quote(from)}`;
  throw new TerminalError("FORK_CONFLICT", `${problem}; use another id`);
}

function isOpen(status: RunStatus): boolean {
  return status !== "completed" && status !== "failed" && status !== "cancelled";
}

function toUpdateOutcome({ output, error }: UpdateAnswer & { readonly output?: unknown }) {
  return error ? ({ status: "failed", error } as const) : ({ status: "answered", output } as const);
}
