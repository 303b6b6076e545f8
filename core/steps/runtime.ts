import type {
  Claimed,
  Journal,
  Missing,
  ParentRun,
  Possession,
  RunKey,
  WorkflowKey,
} from "../journal/journal.ts";
import { StaleRunError } from "../journal/journal.ts";
import { sleep } from "../lock/abort.ts";
import { checkSpan, checkText } from "../lock/checks.ts";
import { Life } from "../lock/life.ts";
import { listener } from "../lock/listener.ts";
import type { LockStore } from "../lock/lock.ts";
import { type Deadline, type Instant, instant, type Millis } from "../lock/time.ts";
import { type Around, within } from "./around.ts";
import { encode, encodeResult } from "./codec.ts";
import { CHILD_LOOK, Context, type DriveChild } from "./context.ts";
import { Drive, type Left, type Terms } from "./drive.ts";
import { type Duration, toMillis } from "./duration.ts";
import {
  InputConflictError,
  RunPoisonedError,
  toErrorInfo,
  UnknownRunError,
  UnknownWorkflowError,
} from "./errors.ts";
import type { RunListener } from "./events.ts";
import { Breakdown } from "./halt.ts";
import { checkSignalName } from "./history.ts";
import { outcomeOf } from "./outcome.ts";
import type { AnyWorkflow, Prepared, RunOutcome, Workflow } from "./workflow.ts";

export interface RuntimeOptions {
  readonly journal: Journal;

  /** For steps with locks. It may be of another kind than the journal. */
  readonly locks?: LockStore | undefined;

  /** What `resume` can go on with; `drive` makes its own known. */
  readonly workflows?: readonly AnyWorkflow[];

  /** Who this is, for humans: 1 to 200 bytes. */
  readonly owner?: string;

  /** How long a run stays ours when we are not heard from. It is renewed meanwhile. Default 30 s. */
  readonly lease?: Duration;

  /** Pauses up to this long are waited for in the process, holding the run. Default 1 s. */
  readonly inlineWait?: Duration;

  /** For tests: sleeps and pauses between attempts take no time. Default false. */
  readonly skipPauses?: boolean;

  /** Told of everything that happens to runs here. What it throws is lost. */
  readonly onEvent?: RunListener;

  /** Around each run that is carried here, and around each attempt at a step of it. */
  readonly around?: Around;
}

export interface DriveOptions {
  /** The run's id, 1 to 255 bytes. Default: the workflow's own `id`. */
  readonly id?: string;

  /** The end of the invocation: nothing is begun that cannot finish, and what is under way is let go of. */
  readonly deadline?: Deadline;

  /** Lets go of the run, so that others can go on with it. What is under way is aborted. */
  readonly signal?: AbortSignal;

  /** Lets go of the run as well, but only at its next step: what is under way may finish. */
  readonly drain?: AbortSignal;

  /** Called when the run has been taken: an outcome without it is of what others have done. It must not throw. */
  readonly onTaken?: () => void;
}

/** Carries runs, each as far as it gets: the same in a function, in a worker and in a program of one's own. */
export interface Runtime {
  /**
   * Begins a run, or goes on with it, until it ends or has to wait. Rejects with an InvalidValueError or an
   * InputConflictError before anything was done; as the journal does when that cannot be reached: then the run is
   * due again once its lease is over.
   */
  drive<I, O>(workflow: Workflow<I, O>, input: I, options?: DriveOptions): Promise<RunOutcome<O>>;

  /** Goes on with a run that is there. Rejects with an UnknownRunError or an UnknownWorkflowError. */
  resume(runId: string, options?: Omit<DriveOptions, "id">): Promise<RunOutcome<unknown>>;

  /** Begins a run and leaves the rest to others: it is due at once. */
  start<I, O>(
    workflow: Workflow<I, O>,
    input: I,
    options?: Pick<DriveOptions, "id">,
  ): Promise<RunOutcome<O>>;

  /** `drive`, again and again until the run has ended. Rejects with the signal's reason. */
  run<I, O>(
    workflow: Workflow<I, O>,
    input: I,
    options?: Omit<DriveOptions, "deadline">,
  ): Promise<Finished<O>>;

  /** Leaves a signal for a run, once per dedupe id. Rejects with an UnknownRunError. */
  signal(
    runId: string,
    name: string,
    payload: unknown,
    options: { readonly dedupeId: string },
  ): Promise<"delivered" | "duplicate" | "ended">;

  /** Stops a run at its next step, and undoes what it has done. Rejects with an UnknownRunError. */
  cancel(runId: string): Promise<"requested" | "ended">;

  /** What this runtime can go on with. */
  readonly workflows: readonly WorkflowKey[];
  readonly journal: Journal;
}

export type Finished<O> = Extract<RunOutcome<O>, { readonly status: "completed" | "failed" }>;

export function createRuntime(options: RuntimeOptions): Runtime {
  return new Engine(options);
}

/** How often one looks for a run that is to end. */
const LOOK_EVERY: Millis = 1_000;

type Begin = Omit<DriveOptions, "id"> & { readonly parent?: ParentRun };

class Engine implements Runtime {
  readonly journal: Journal;
  readonly #locks: LockStore | undefined;
  readonly #owner: string;
  readonly #lease: Millis;
  readonly #inlineWait: Millis;
  readonly #skipPauses: boolean;
  readonly #notify: RunListener;
  readonly #around: Around;
  readonly #workflows = new Map<string, AnyWorkflow>();

  constructor(options: RuntimeOptions) {
    const { journal, locks, workflows = [], owner = "lockstep", lease = 30_000 } = options;
    checkText("owner", owner, 200);
    this.journal = journal;
    this.#locks = locks;
    this.#owner = owner;
    this.#lease = toMillis("lease", lease);
    checkSpan("lease", this.#lease, 100);
    this.#inlineWait = toMillis("inlineWait", options.inlineWait ?? 1_000);
    this.#skipPauses = options.skipPauses ?? false;
    this.#notify = listener(options.onEvent);
    this.#around = options.around ?? {};
    for (const workflow of workflows) this.#know(workflow);
  }

  get workflows(): readonly WorkflowKey[] {
    return [...this.#workflows.values()].map(({ name, version }) => ({ workflow: name, version }));
  }

  async drive<I, O>(
    workflow: Workflow<I, O>,
    input: I,
    { id, ...options }: DriveOptions = {},
  ): Promise<RunOutcome<O>> {
    return this.#begin(workflow, await this.#prepare(workflow, input, id), options);
  }

  async start<I, O>(
    workflow: Workflow<I, O>,
    input: I,
    { id }: Pick<DriveOptions, "id"> = {},
  ): Promise<RunOutcome<O>> {
    const prepared = await this.#prepare(workflow, input, id);
    // A run that is let go of before its first step.
    return this.#begin(workflow, prepared, { signal: AbortSignal.abort() });
  }

  async run<I, O>(
    workflow: Workflow<I, O>,
    input: I,
    { id, signal }: Omit<DriveOptions, "deadline"> = {},
  ): Promise<Finished<O>> {
    const { runId } = await workflow.prepare(input, id);
    const again = { id: runId, ...(signal && { signal }) };
    for (;;) {
      signal?.throwIfAborted();
      const outcome = await this.drive(workflow, input, again);
      if (outcome.status === "completed" || outcome.status === "failed") return outcome;
      const wait = outcome.status === "busy" ? outcome.retryIn : outcome.wakeIn;
      await sleep(Math.min(wait, LOOK_EVERY), signal);
    }
  }

  async resume(runId: string, options: Omit<DriveOptions, "id"> = {}) {
    checkText("run id", runId, 255);
    const take = { runId, owner: this.#owner, ttl: this.#lease };
    return this.#carry(runId, (signal) => this.journal.take(take, signal), options);
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
    const answer = await this.journal.signal(runId, { name, dedupeId, payload: encode(payload) });
    if (answer === "missing") throw new UnknownRunError(runId);
    return answer;
  }

  async cancel(runId: string) {
    checkText("run id", runId, 255);
    const answer = await this.journal.cancel(runId);
    if (answer === "missing") throw new UnknownRunError(runId);
    return answer;
  }

  async #prepare<I, O>(workflow: Workflow<I, O>, input: I, id?: string): Promise<Ready> {
    this.#know(workflow);
    const prepared = await workflow.prepare(input, id);
    return { ...prepared, input: encodeResult(`the input of ${workflow.name}`, prepared.input) };
  }

  async #begin<I, O>(
    workflow: Workflow<I, O>,
    { runId, input, inputHash, onConflict }: Ready,
    begin: Begin,
  ): Promise<RunOutcome<O>> {
    const take = { runId, owner: this.#owner, ttl: this.#lease };
    const claim = {
      ...take,
      workflow: workflow.name,
      version: workflow.version,
      input,
      inputHash,
      parent: begin.parent,
    };
    const claimIt = async (signal?: AbortSignal) => {
      const claimed = await this.journal.claim(claim, signal);
      const existing = claimed.kind === "conflict" && onConflict === "return-existing";
      return existing ? this.journal.take(take, signal) : claimed;
    };
    return (await this.#carry(runId, claimIt, begin)) as RunOutcome<O>;
  }

  async #carry(
    runId: string,
    claim: (signal?: AbortSignal) => Promise<Claimed | Missing>,
    { deadline = FOREVER, signal, drain, onTaken }: DriveOptions,
  ): Promise<RunOutcome<unknown>> {
    if (deadline.remaining() <= 0) return { runId, status: "busy", retryIn: 0 };
    const sentAt = instant();
    const claimed = await claim();
    if (claimed.kind === "missing") throw new UnknownRunError(runId);
    if (claimed.kind === "conflict") throw new InputConflictError(runId);
    if (claimed.kind === "busy") return { runId, status: "busy", retryIn: claimed.retryIn };
    if (claimed.kind === "ended") {
      this.#notify({ type: "answered", runId, status: claimed.ending.status });
      return outcomeOf(runId, claimed.ending);
    }
    if (claimed.kind === "parked") {
      return { runId, status: "suspended", reason: claimed.reason, wakeIn: claimed.wakeIn };
    }
    const key = { runId, epoch: claimed.epoch };
    const workflow = this.#workflows.get(nameOf(claimed.workflow, claimed.version));
    if (!workflow) {
      await this.#park(key, claimed, { reason: "deadline", wakeIn: 0 });
      throw new UnknownWorkflowError(claimed.workflow, claimed.version);
    }
    const run = { runId, workflow: workflow.name, crashes: claimed.crashes };
    this.#notify({ type: "taken", ...run });
    onTaken?.();
    const hold = this.#hold(key, sentAt);
    try {
      const taken = { key, workflow, possession: claimed, deadline, signal, drain, hold };
      const around = this.#around.run?.bind(this.#around);
      return await within(around, run, () => this.#leave(taken));
    } catch (error) {
      // Somebody else has the run by now.
      if (!(error instanceof StaleRunError)) throw error;
      return { runId, status: "busy", retryIn: this.#lease };
    } finally {
      hold.life.end("released");
    }
  }

  /** Carries the run as far as it gets, then parks or ends it. */
  async #leave(taken: Taken): Promise<RunOutcome<unknown>> {
    const { key, workflow, possession, hold } = taken;
    const left = await this.#drive(taken);
    // From here on nothing is renewed: a late renewal must not take back what is given up.
    hold.life.end("released");
    if ("parking" in left) {
      const parked = await this.#park(key, possession, left.parking);
      return { runId: key.runId, status: "suspended", ...parked };
    }
    await this.journal.finish(key, { ...left.ending, keep: workflow.keep });
    const { status } = left.ending;
    this.#notify({ type: "ended", runId: key.runId, workflow: workflow.name, status });
    return outcomeOf(key.runId, left.ending);
  }

  async #drive({ hold, ...taken }: Taken): Promise<Left> {
    const { key, workflow, possession, deadline, signal, drain } = taken;
    const { crashes } = possession;
    if (crashes >= workflow.maxCrashes) {
      const error = toErrorInfo(new RunPoisonedError(key.runId, crashes));
      return { ending: { status: "failed", value: encode(error), compensated: false } };
    }
    if (signal?.aborted || drain?.aborted) return { parking: { reason: "deadline", wakeIn: 0 } };
    const services = {
      journal: this.journal,
      locks: this.#locks,
      inlineWait: this.#inlineWait,
      skipPauses: this.#skipPauses,
      notify: this.#notify,
      around: this.#around,
    };
    const drive = new Drive({ ...taken, services, life: hold.life });
    hold.onCancelled = () => drive.cancel();
    const driveChild: DriveChild = async (child, input, { id, signal: name }) => {
      const prepared = await this.#prepare(child, input, id);
      const parent = { runId: key.runId, signal: name };
      const more = drain && { drain };
      const begin = { deadline, signal: drive.signal, ...more, parent };
      return this.#begin(child, prepared, begin).catch((error) => notCarried(id, error));
    };
    return drive.run(new Context(drive, driveChild));
  }

  async #park(key: RunKey, { signals }: Possession, parking: Parked): Promise<Parked> {
    await this.journal.park(key, { ...parking, signalsSeen: signals.length });
    this.#notify({ type: "parked", runId: key.runId, ...parking });
    return parking;
  }

  /** Keeps the run ours, until its life ends. */
  #hold(key: RunKey, sentAt: Instant): Hold {
    const hold = {
      onCancelled: () => {},
      life: new Life({
        names: [key.runId],
        ttl: this.#lease,
        sentAt,
        auto: true,
        maxHold: Number.POSITIVE_INFINITY,
        notify: () => {},
        lost: () => new StaleRunError(key),
        renew: async (ttl, signal) => {
          const grant = { ttl, sentAt: instant() };
          const renewed = await this.journal.renew(key, ttl, signal);
          if (renewed?.cancelled) hold.onCancelled();
          return renewed && grant;
        },
      }),
    };
    return hold;
  }

  #know(workflow: AnyWorkflow): void {
    const name = nameOf(workflow.name, workflow.version);
    const known = this.#workflows.get(name);
    if (known && known !== workflow) {
      throw new TypeError(
        `there are two workflows ${workflow.name} of version ${workflow.version}`,
      );
    }
    this.#workflows.set(name, workflow);
  }
}

type Parked = Extract<Left, { readonly parking: unknown }>["parking"];

interface Hold {
  readonly life: Life;
  onCancelled: () => void;
}

/** A run in our hands. */
interface Taken extends Omit<Terms, "services" | "life"> {
  readonly hold: Hold;
}

/** What a workflow is begun with, its input encoded. */
interface Ready extends Prepared {
  readonly input: string;
}

/** That the journal fails is not the child's failure; and somebody else may carry what is not known here. */
function notCarried(runId: string, error: unknown): RunOutcome<never> {
  if (error instanceof InputConflictError) throw error;
  if (!(error instanceof UnknownWorkflowError)) throw new Breakdown(error);
  return { runId, status: "busy", retryIn: CHILD_LOOK };
}

const FOREVER: Deadline = { remaining: () => Number.POSITIVE_INFINITY };

function nameOf(workflow: string, version: number): string {
  return JSON.stringify([workflow, version]);
}
