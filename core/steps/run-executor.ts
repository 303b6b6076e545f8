import type { ContinueRequest } from "../journal/changes.ts";
import { encodeChildResult } from "../journal/child-result.ts";
import type { Journal } from "../journal/journal.ts";
import { StaleRunError } from "../journal/journal.ts";
import type { DueRun } from "../journal/queries.ts";
import type {
  ClaimedRun,
  NewRun,
  RunClaimResult,
  RunKey,
  RunNotFound,
  StartedRun,
  WorkflowVersion,
} from "../journal/runs.ts";
import { splitRuns } from "../journal/split-runs.ts";
import { DEFAULT_QUEUE } from "../journal/turn-order.ts";
import { deadline as abortAfter, noAnswer, race } from "../lock/abort.ts";
import { checkSignal, describeValue, leftUntil } from "../lock/checks.ts";
import { toMillis } from "../lock/duration.ts";
import { quote, UnknownOutcomeError } from "../lock/errors.ts";
import { Lease } from "../lock/lease.ts";
import { type Deadline, type Instant, instant, type Millis } from "../lock/time.ts";
import type { ChildStarter, NewChild } from "./children.ts";
import { decodeError, encodeInfo, encodeResult } from "./codec.ts";
import { Context } from "./context.ts";
import type { DueExecution, ResumeOptions, Runtime, StartOptions } from "./contract.ts";
import {
  failEngine,
  inputConflict,
  runPoisoned,
  toErrorInfo,
  unknownRun,
  unknownWorkflow,
} from "./errors.ts";
import { type Blocked, type ExecutionResult, executeRun } from "./execute.ts";
import { type ExecutionOptions, RunExecution, type RuntimeServices } from "./execution.ts";
import { intercept } from "./interceptor.ts";
import { readRecords } from "./read-run.ts";
import { type AnyWorkflow, type RunOutcome, toRunOutcome, type Workflow } from "./workflow.ts";

/** The pauses of a blocked run: short enough for a rollback, and rare enough for a bug of a week. */
const FIRST_BLOCK: Millis = 5_000;
const LONGEST_BLOCK: Millis = 600_000;

/** The most children that are claimed and executed at a time. */
const CHILDREN_AT_ONCE = 8;

/** The most runs, and the most characters of their inputs, that are started with one call of the journal. */
const BATCH_RUNS = 200;
const BATCH_LENGTH = 1_048_576;

/** Executes the runs of a runtime's workflows, from their claim until they end or are parked. */
export class RunExecutor {
  readonly #journal: Journal;
  readonly #services: RuntimeServices;
  readonly #workflows = new Map<string, AnyWorkflow>();

  /** The executions in this process, by run id. */
  readonly #executions = new Map<string, RunExecution>();

  constructor(services: RuntimeServices) {
    this.#journal = services.journal;
    this.#services = services;
  }

  get workflows(): readonly AnyWorkflow[] {
    return [...this.#workflows.values()];
  }

  get versions(): readonly WorkflowVersion[] {
    return this.workflows.map(({ name, version }) => ({ workflow: name, version }));
  }

  /** Returns the workflow of this version if this process knows it. */
  find({ workflow, version }: WorkflowVersion): AnyWorkflow | undefined {
    return this.#workflows.get(idOf(workflow, version));
  }

  /** Tells the execution of the run, if this process executes it, that the run is cancelled. */
  cancel(runId: string): void {
    this.#executions.get(runId)?.cancel();
  }

  /** Claims due runs, which the caller then executes. */
  async claimDue(
    query: Parameters<Runtime["claimDue"]>[0],
    signal?: AbortSignal,
  ): Promise<readonly DueExecution[]> {
    const sentAt = instant();
    const runs = await this.#journal.claimDue(this.#dueQuery(query), signal);
    return runs.map((claimed) => ({
      runId: claimed.runId,
      part: claimed.part,
      execute: async (options = {}) => (await this.#executeTaken(claimed, sentAt, options)).outcome,
    }));
  }

  /** Completes a query for due runs: with the queues and versions of the known workflows. */
  #dueQuery<Q extends Parameters<Runtime["claimDue"]>[0]>(query: Q) {
    const queuesOfWorkflows = new Set([DEFAULT_QUEUE, ...this.workflows.map(({ queue }) => queue)]);
    const { queues = [...queuesOfWorkflows] } = query;
    return {
      ...query,
      queues,
      workflows: this.versions,
      owner: this.#services.owner,
      ttl: this.#services.leaseTtl,
    };
  }

  /** Checks the input, and makes the run that is to be created. Registers the workflow. */
  async prepare<I, O>(
    workflow: Workflow<I, O>,
    input: I,
    { id, queue, key, priority }: StartOptions,
  ): Promise<PreparedRun> {
    this.register(workflow);
    const { runId, turn, inputHash, onConflict, ...prepared } = await workflow.prepare(input, id);
    const { name, version } = workflow;
    const seal = this.#services.envelopes?.sealFor(runId);
    const run = {
      runId,
      owner: this.#services.owner,
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

  /** Executes a run and its children. If the run has another input, the existing run is taken if its workflow says so. */
  async executePrepared(
    { run: { runId }, onConflict }: PreparedRun,
    claim: (signal?: AbortSignal) => Promise<RunClaimResult>,
    options: ResumeOptions,
  ): Promise<RunOutcome<unknown>> {
    const claimOrTake = async (limit?: AbortSignal) => {
      const claimed = await claim(limit);
      const isExisting = claimed.kind === "conflict" && onConflict === "return-existing";
      return isExisting ? this.#takeLease(runId, limit) : claimed;
    };
    return this.#withChildren(await this.execute(runId, claimOrTake, options), options);
  }

  /** Claims an existing run, and executes it and its children. */
  async resume(runId: string, options: ResumeOptions): Promise<RunOutcome<unknown>> {
    return this.#withChildren(await this.#take(runId, options), options);
  }

  #take(runId: string, options: ResumeOptions): Promise<Execution> {
    return this.execute(runId, (limit) => this.#takeLease(runId, limit), options);
  }

  #takeLease(runId: string, signal?: AbortSignal): Promise<RunClaimResult | RunNotFound> {
    const { owner, leaseTtl: ttl } = this.#services;
    return this.#journal.take({ runId, owner, ttl }, signal);
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

  /** Executes a run if `claim` gets its lease. Resolves to the state of the run otherwise. */
  async execute(
    runId: string,
    claim: (signal?: AbortSignal) => Promise<RunClaimResult | RunNotFound>,
    options: ResumeOptions,
  ): Promise<Execution> {
    const busy = (retryIn: Millis): Execution => ({ outcome: { runId, status: "busy", retryIn } });
    checkSignal(options.signal);
    lockWaitOf(options);
    const left = leftUntil(options.deadline);
    if (left <= 0) return busy(0);
    const sentAt = instant();
    const claimed = await claimWithin(left, runId, claim);
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
    options: ResumeOptions,
  ): Promise<Execution> {
    const { deadline = FOREVER, signal, drain, onTaken } = options;
    const lockWait = lockWaitOf(options);
    const { notify, interceptor } = this.#services;
    const { runId, epoch } = claimed;
    const key = { runId, epoch };
    const workflow = this.find(claimed);
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
      return { outcome: { runId, status: "busy", retryIn: this.#services.leaseTtl } };
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
      const isDue = renewal.execution?.hasDueBranch ?? false;
      return { outcome: { runId, status: "suspended", reason, wakeIn }, awaitsChildren, isDue };
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
  #undoCancelled(execution: ClaimedExecution): Promise<Execution> {
    const { key, deadline, signal, drain, lockWait } = execution;
    this.#services.notify({ type: "parked", runId: key.runId, reason: "deadline", wakeIn: 0 });
    return this.#take(key.runId, { deadline, signal, drain, lockWait });
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
      return await executeRun(
        execution,
        new Context(execution, this.#childStarter(key, execution.attemptSignal)),
      );
    } finally {
      execution.inProgress[Symbol.dispose]();
      if (this.#executions.get(key.runId) === execution) this.#executions.delete(key.runId);
    }
  }

  #childStarter(key: RunKey, abort: AbortSignal): ChildStarter {
    const { runId: parentId } = key;
    return {
      register: (workflow) => this.register(workflow),
      start: async (workflow, children, signal) => {
        const parent = { runId: parentId, signal };
        const prepare = async ({ id, input, detached }: NewChild<unknown>): Promise<NewRun> => {
          const any = workflow as Workflow<unknown, unknown>;
          const { run } = await this.prepare(any, input, { id });
          return { ...run, parent, detached };
        };
        const runs = await race(Promise.all(children.map(prepare)), abort);
        return this.#startRuns(runs, key);
      },
      find: (runId) => this.#journal.show(runId).catch(failEngine),
      cancel: async () => {
        const { open, compensated } = await this.#journal
          .cancelChildren(parentId)
          .catch(failEngine);
        for (const runId of open) this.cancel(runId);
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
    for (const batch of batchesOf(runs)) {
      const started = await this.#journal.start(batch, parent).catch(failEngine);
      for (const [i, state] of started.entries()) {
        if (state.kind === "conflict") throw inputConflict(batch[i]?.runId ?? "");
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
        ttl: this.#services.leaseTtl,
        sentAt,
        autoRenew: true,
        maxHold: Number.POSITIVE_INFINITY,
        toLossError: () => new StaleRunError(key),
        renew: async (ttl, signal) => {
          const grant = { ttl, sentAt: instant() };
          const inProgress = renewal.execution?.inProgress.report();
          const renewed = await this.#journal.renew(key, ttl, signal, inProgress);
          if (renewed?.cancelled) renewal.execution?.cancel();
          if (renewed) renewal.execution?.noteSignals(renewed.signals);
          return renewed && grant;
        },
      }),
    };
    return renewal;
  }

  /** Makes the workflow known to this process. Throws for a second workflow of the same name and version. */
  register(workflow: AnyWorkflow): void {
    checkWorkflow(workflow);
    const { name, version } = workflow;
    const known = this.find({ workflow: name, version });
    if (known && known !== workflow) {
      throw new TypeError(`two workflows have the name ${name} and the version ${version}`);
    }
    this.#workflows.set(idOf(name, version), workflow);
  }
}

export function checkWorkflow(workflow: AnyWorkflow): void {
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

export interface PreparedRun
  extends Pick<Awaited<ReturnType<AnyWorkflow["prepare"]>>, "onConflict"> {
  readonly run: NewRun;
}

interface Execution {
  readonly outcome: RunOutcome<unknown>;

  /** Whether the run is parked for children. */
  readonly awaitsChildren?: boolean;

  /** Whether the run goes on at once: in a new history, or with a branch that has something to receive. */
  readonly isDue?: boolean;
}

/** Whether a child has ended, or waits for something: resuming it again at once would be of no use. */
function hasGoneOn(outcome: RunOutcome<unknown>): boolean {
  return outcome.status !== "busy" && !(outcome.status === "suspended" && outcome.wakeIn <= 0);
}

/** Rejects with an UnknownOutcomeError after `left` milliseconds, unless the claim was certainly not made. */
async function claimWithin<T>(
  left: Millis,
  runId: string,
  claim: (signal?: AbortSignal) => Promise<T>,
): Promise<T> {
  if (!Number.isFinite(left)) return claim();
  using limit = abortAfter(left, noAnswer);
  try {
    return await claim(limit.signal);
  } catch (error) {
    if (error !== limit.signal.reason) throw error;
    throw new UnknownOutcomeError("the journal", `run ${quote(runId)} was claimed`, error);
  }
}

/** Returns the longest wait for a lock in milliseconds. Throws a TypeError or a RangeError for another value. */
function lockWaitOf({ lockWait }: ResumeOptions): Millis | undefined {
  return lockWait === undefined
    ? undefined
    : toMillis("lockWait", lockWait, 0, Number.POSITIVE_INFINITY);
}

function isOver({ deadline = FOREVER, signal, drain }: ResumeOptions): boolean {
  return deadline.remaining() <= 0 || signal?.aborted === true || drain?.aborted === true;
}

/** Splits runs into batches that the journal starts with one call. */
export function batchesOf(runs: readonly NewRun[]): readonly (readonly NewRun[])[] {
  return splitRuns(runs, BATCH_RUNS, BATCH_LENGTH);
}

const FOREVER: Deadline = { remaining: () => Number.POSITIVE_INFINITY };

function idOf(workflow: string, version: number): string {
  return JSON.stringify([workflow, version]);
}
