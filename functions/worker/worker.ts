import { deadline, follow, race, type Scope } from "../../core/lock/abort.ts";
import { hasCode } from "../../core/lock/errors.ts";
import type { Millis } from "../../core/lock/time.ts";
import { UnknownRunError } from "../../core/steps/errors.ts";
import type { RunOutcome } from "../../core/steps/workflow.ts";
import { Bell } from "./bell.ts";
import { Keys } from "./keys.ts";
import {
  type CheckedOptions,
  checkOptions,
  type WorkerOptions,
  type WorkerReport,
} from "./options.ts";
import { Pace } from "./pace.ts";

/**
 * Carries due runs, whoever has begun them, until it is told to end; then lets go of them all.
 *
 * Any number of workers may share a journal. A run that sleeps or waits takes up none of them. While the journal
 * is away the worker keeps asking; it rejects only where that is of no use from the start, or the journal was closed.
 */
export async function runWorker(options: WorkerOptions): Promise<WorkerReport> {
  return new Worker(checkOptions(options)).run();
}

/** How many due runs are looked at for each that is wanted: other workers take some, and busy keys are passed over. */
const LOOK_AHEAD = 4;
const LEAST_AHEAD = 32;
const KEYED_AHEAD = 1_000;

/** How long it may take to let go of what was aborted: the release of a lock and the write to the journal. */
const LETTING_GO: Millis = 15_000;

/** Runs that cannot be carried rest for this long, and up to the second span as it happens again. */
const REST: Millis = 1_000;
const LONGEST_REST: Millis = 60_000;

class Worker {
  readonly #options: CheckedOptions;
  readonly #keys: Keys | undefined;
  readonly #pace = new Pace();
  readonly #bell = new Bell();
  readonly #running = new Map<string, Promise<void>>();
  readonly #resting = new Map<string, { readonly until: number; readonly pause: Millis }>();
  readonly #stop = new AbortController();
  readonly #ending: Scope;
  #backlog: string[] = [];
  #hasAnswered = false;
  #isAway = false;
  #isAborted = false;
  #counts = { completed: 0, failed: 0, parked: 0 };

  constructor(options: CheckedOptions) {
    this.#options = options;
    const { runtime, keyOf, perKey } = options;
    this.#keys = keyOf && new Keys(runtime.journal, keyOf, perKey);
    this.#ending = follow(options.signal, options.abort);
  }

  async run(): Promise<WorkerReport> {
    const { signal } = this.#ending;
    const onEnd = () => this.#bell.ring();
    signal.addEventListener("abort", onEnd);
    try {
      while (!signal.aborted) await this.#bell.wait(await this.#fill());
    } finally {
      signal.removeEventListener("abort", onEnd);
      await this.#end();
      this.#ending[Symbol.dispose]();
    }
    return { ...this.#counts, isClean: !this.#isAborted };
  }

  /** Takes as much as there is room for. Resolves to how long there will be nothing more to do by itself. */
  async #fill(): Promise<Millis> {
    while (!this.#ending.signal.aborted) {
      if (this.#running.size >= this.#options.concurrency) return Number.POSITIVE_INFINITY;
      const runId = this.#next();
      if (runId !== undefined) this.#begin(runId);
      else if (this.#pace.wait > 0) return this.#pace.wait;
      else await this.#look();
    }
    return 0;
  }

  #next(): string | undefined {
    const at = this.#backlog.findIndex((runId) => this.#keys?.hasRoom(runId) ?? true);
    return at < 0 ? undefined : this.#backlog.splice(at, 1)[0];
  }

  async #look(): Promise<void> {
    const { runtime, concurrency } = this.#options;
    const ahead = Math.max(LOOK_AHEAD * concurrency, LEAST_AHEAD);
    const limit = this.#keys ? KEYED_AHEAD : ahead;
    const { workflows, journal } = runtime;
    try {
      const due = await journal.due({ workflows, limit }, this.#ending.signal);
      const ours = due.filter((runId) => this.#isFree(runId));
      const known = await Promise.all(ours.map((runId) => this.#learn(runId)));
      // In an order of its own, so that workers who were told of the same runs seldom want the same one.
      this.#backlog = shuffled(ours.filter((_, i) => known[i]));
      this.#hasAnswered = true;
      this.#pace.looked();
      if (this.#isAway) this.#options.onEvent({ type: "recovered" });
      this.#isAway = false;
    } catch (error) {
      if (this.#ending.signal.aborted) return;
      const isHopeless = hasCode(error, "STORE_REFUSED") && !this.#hasAnswered;
      if (isHopeless || !isOutage(error)) throw error;
      this.#onOutage(error);
    }
  }

  #isFree(runId: string): boolean {
    const rest = this.#resting.get(runId);
    return !this.#running.has(runId) && (rest === undefined || rest.until <= performance.now());
  }

  /** False: its key cannot be told. */
  async #learn(runId: string): Promise<boolean> {
    try {
      await this.#keys?.learn(runId);
      return true;
    } catch (error) {
      if (isOutage(error)) throw error;
      this.#onRefused(runId, error);
      return false;
    }
  }

  #begin(runId: string): void {
    const carried = this.#carry(runId).finally(() => {
      this.#running.delete(runId);
      this.#bell.ring();
    });
    this.#running.set(runId, carried);
  }

  /** Never rejects. */
  async #carry(runId: string): Promise<void> {
    using _ = this.#keys?.enter(runId);
    let isTaken = false;
    const onTaken = () => {
      isTaken = true;
      this.#pace.found();
    };
    const ends = { drain: this.#ending.signal, signal: this.#stop.signal };
    try {
      const outcome = await this.#options.runtime.resume(runId, { ...ends, onTaken });
      // Otherwise another worker was faster.
      if (isTaken) this.#onCarried(outcome);
    } catch (error) {
      // It was there a moment ago, and its time was over.
      if (error instanceof UnknownRunError) return;
      if (isOutage(error)) this.#onOutage(error);
      else this.#onRefused(runId, error);
    }
  }

  #onCarried(outcome: RunOutcome<unknown>): void {
    this.#options.onEvent({ type: "carried", outcome });
    this.#resting.delete(outcome.runId);
    const { status } = outcome;
    if (status === "suspended") this.#pace.parked(outcome.wakeIn);
    // Busy: it was lost on the way.
    if (status !== "busy") this.#counts[status === "suspended" ? "parked" : status] += 1;
  }

  #onRefused(runId: string, error: unknown): void {
    const pause = Math.min(2 * (this.#resting.get(runId)?.pause ?? REST / 2), LONGEST_REST);
    this.#resting.set(runId, { until: performance.now() + pause, pause });
    this.#options.onEvent({ type: "refused", runId, error });
  }

  #onOutage(error: unknown): void {
    this.#backlog = [];
    this.#pace.failed();
    if (!this.#isAway) this.#options.onEvent({ type: "outage", error });
    this.#isAway = true;
  }

  /** Waits for what is under way, for as long as `drain` says, and then no longer than letting go takes. */
  async #end(): Promise<void> {
    const { drain, abort, onEvent } = this.#options;
    if (this.#running.size > 0) onEvent({ type: "draining", running: this.#running.size });
    await this.#settled(drain, abort);
    if (this.#running.size === 0) return;
    this.#isAborted = true;
    onEvent({ type: "aborting", running: this.#running.size });
    this.#stop.abort(new Error("the worker has ended"));
    await this.#settled(LETTING_GO);
  }

  /** Resolves when nothing is under way, after `span`, or when the signal aborts. */
  async #settled(span: Millis, signal?: AbortSignal): Promise<void> {
    using limit = deadline(span, () => new Error("the time is over"), signal);
    const settled = Promise.all(this.#running.values());
    await race(settled, limit.signal).catch(() => {});
  }
}

function isOutage(error: unknown): boolean {
  return hasCode(error, "STORE_UNAVAILABLE", "STORE_REFUSED", "UNKNOWN_OUTCOME");
}

function shuffled<T>(items: readonly T[]): T[] {
  return items
    .map((item) => ({ item, place: Math.random() }))
    .sort((a, b) => a.place - b.place)
    .map(({ item }) => item);
}
