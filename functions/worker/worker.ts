import { deadline, follow, race, type Scope, sleep } from "../../core/lock/abort.ts";
import { hasCode } from "../../core/lock/errors.ts";
import { Notifier } from "../../core/lock/notifier.ts";
import { jittered, type Millis } from "../../core/lock/time.ts";
import type { DueExecution } from "../../core/steps/contract.ts";
import type { RunOutcome } from "../../core/steps/workflow.ts";
import {
  type CheckedOptions,
  checkOptions,
  type WorkerOptions,
  type WorkerReport,
} from "./options.ts";
import { PollSchedule } from "./poll-schedule.ts";

/**
 * Executes due runs, whichever process started them, until `signal` aborts; then parks its runs.
 *
 * Any number of workers may share a journal. A sleeping or waiting run occupies no worker. During an outage of the journal
 * the worker keeps polling. Rejects only when the journal refuses the first request for good, or was closed.
 */
export async function runWorker(options: WorkerOptions): Promise<WorkerReport> {
  return new Worker(checkOptions(options)).run();
}

/** The wait while all slots are full, until the next look for operations of entities. */
const FULL_WAIT: Millis = 1_000;

/** While fewer than half of the slots are free, so long more may become free: one claim then fills all of them. */
const GATHER: Millis = 10;

/** A run that waits longer for a lock is parked, so that other runs get its slot. */
const LOCK_WAIT: Millis = 50;

/** How often a worker deletes expired runs, and how many at a time. */
const PURGE_PAUSE: Millis = 60_000;
const PURGED = 100;

/** The longest pause between two looks at the schedules: the process's clock may be set. */
const SCHEDULE_PAUSE: Millis = 60_000;

/** The pause after a failure of the journal. */
const SCHEDULE_RETRY: Millis = 5_000;

/** Up to so much later, at random: the first of many workers starts the slot, and the others find it started. */
const SCHEDULE_JITTER: Millis = 100;

/** The time to release the lock of an aborted run and to write to the journal. */
const ABORT_TIME: Millis = 15_000;

class Worker {
  readonly #options: CheckedOptions;
  readonly #schedule = new PollSchedule();
  readonly #changes = new Notifier();
  readonly #running = new Set<Promise<void>>();
  readonly #stop = new AbortController();
  readonly #ending: Scope;
  #delivering: Promise<void> | undefined;
  #hasOperations = false;
  #isDeliveryFailing = false;
  #scheduling: Promise<void> | undefined;
  #purgeAt = 0;

  /** The time of the next claim for fewer than half of the slots. */
  #gatherUntil = 0;
  #hasAnswered = false;
  #isOutage = false;
  #recoveries = 0;
  #isAborted = false;
  #counts = { completed: 0, failed: 0, parked: 0, blocked: 0 };

  constructor(options: CheckedOptions) {
    this.#options = options;
    this.#ending = follow(options.signal, options.abort);
  }

  async run(): Promise<WorkerReport> {
    const { signal } = this.#ending;
    const onAbort = () => this.#changes.notify();
    const onDue = () => {
      this.#schedule.notified();
      this.#changes.notify();
    };
    signal.addEventListener("abort", onAbort);
    const stopListening = this.#options.runtime.onDue(onDue);
    const scheduling = new AbortController();
    this.#scheduling = this.#startScheduled(scheduling.signal);
    try {
      while (!signal.aborted) await this.#changes.wait({ span: await this.#fillSlots() });
    } finally {
      signal.removeEventListener("abort", onAbort);
      stopListening();
      scheduling.abort();
      await this.#end();
      this.#ending[Symbol.dispose]();
    }
    return { ...this.#counts, isClean: !this.#isAborted };
  }

  /** Starts runs until the slots are full or no run is due. Resolves to the time until the next poll. */
  async #fillSlots(): Promise<Millis> {
    while (!this.#ending.signal.aborted) {
      if (performance.now() >= this.#purgeAt) void this.#purge();
      const free = this.#options.concurrency - this.#running.size;
      if (free <= 0) {
        this.#deliver();
        return FULL_WAIT;
      }
      const gathering =
        free < this.#options.concurrency / 2 ? this.#gatherUntil - performance.now() : 0;
      const wait = Math.max(this.#schedule.wait, gathering);
      if (wait > 0) return wait;
      await this.#poll(free);
    }
    return 0;
  }

  /** Not aborted by the worker's end: claimed runs are then parked. */
  async #poll(limit: number): Promise<void> {
    const { runtime, queues } = this.#options;
    this.#schedule.polling();
    this.#gatherUntil = 0;
    try {
      let heldFor = Number.POSITIVE_INFINITY;
      const onHeldBack = (retryIn: Millis) => {
        heldFor = retryIn;
      };
      const due = await runtime.claimDue({ limit, onHeldBack, ...(queues && { queues }) });
      this.#hasAnswered = true;
      this.#schedule.polled(due.length, heldFor);
      if (this.#isOutage) this.#onRecovered();
      this.#deliver();
      for (const run of due) this.#start(run);
    } catch (error) {
      if (this.#ending.signal.aborted) return;
      const isPermanent = hasCode(error, "STORE_REFUSED") && !this.#hasAnswered;
      if (isPermanent || !isOutage(error)) throw error;
      this.#onOutage(error);
    }
  }

  /** Handles operations of entities that wait, also those that arrive meanwhile. */
  #deliver(): void {
    this.#hasOperations = true;
    this.#delivering ??= this.#deliverAll().finally(() => {
      this.#delivering = undefined;
    });
  }

  /** Never rejects. */
  async #deliverAll(): Promise<void> {
    while (this.#hasOperations) {
      this.#hasOperations = false;
      try {
        await this.#options.runtime.deliver(this.#ending.signal, this.#stop.signal);
        this.#isDeliveryFailing = false;
      } catch (error) {
        if (!this.#isDeliveryFailing) this.#onFailed("entities", error);
        this.#isDeliveryFailing = true;
      }
    }
  }

  /** During an outage, the polls report it. */
  #onFailed(what: "entities" | "schedules", error: unknown): void {
    if (this.#ending.signal.aborted || isOutage(error)) return;
    this.#options.onEvent({ type: "failed", what, error });
  }

  /** Starts the slots of schedules until the signal aborts. Never rejects. */
  async #startScheduled(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const nextIn = await this.#startSlots().catch((error) => {
        this.#onFailed("schedules", error);
        return SCHEDULE_RETRY;
      });
      const pause = Math.min(nextIn + Math.random() * SCHEDULE_JITTER, SCHEDULE_PAUSE);
      await sleep(pause, signal).catch(() => {});
    }
  }

  /** Resolves to the time until the next slot. */
  async #startSlots(): Promise<Millis> {
    const { refused, nextIn } = await this.#options.runtime.startScheduled();
    for (const slot of refused) this.#options.onEvent({ type: "refused", ...slot });
    return nextIn;
  }

  /** Deletes some expired runs. The next purge follows soon if there may be more. Never rejects. */
  async #purge(): Promise<void> {
    this.#purgeAt = Number.POSITIVE_INFINITY;
    const purging = this.#options.runtime.journal.purge(PURGED);
    // During an outage, the polls report it.
    const count = await purging.catch(() => 0);
    const pause = count < PURGED ? PURGE_PAUSE : PURGE_PAUSE / 60;
    // At random, so that workers seldom purge at the same time.
    this.#purgeAt = performance.now() + jittered(pause);
  }

  #start(run: DueExecution): void {
    const executing = this.#execute(run).finally(() => {
      this.#running.delete(executing);
      this.#gatherUntil ||= performance.now() + GATHER;
      // Its end may have freed a place in a limited queue, and a parked run may be due at once.
      this.#schedule.notified();
      this.#changes.notify();
    });
    this.#running.add(executing);
  }

  /** Never rejects. */
  async #execute(run: DueExecution): Promise<void> {
    const recoveries = this.#recoveries;
    try {
      const signals = { drain: this.#ending.signal, signal: this.#stop.signal };
      this.#onExecuted(await run.execute({ ...signals, lockWait: LOCK_WAIT }));
    } catch (error) {
      // Other processes leave the run alone until its lease has expired.
      if (!isOutage(error)) this.#options.onEvent({ type: "refused", runId: run.runId, error });
      // A call that was sent before a recovery may fail after it. Its outage is over.
      else if (recoveries === this.#recoveries) this.#onOutage(error);
    }
  }

  #onExecuted(outcome: RunOutcome<unknown>): void {
    this.#options.onEvent({ type: "executed", outcome });
    const { status } = outcome;
    if (status === "suspended") this.#schedule.parked(outcome.wakeIn);
    if (status === "blocked") this.#schedule.parked(outcome.retryIn);
    // A busy run was lost to another process.
    if (status !== "busy") this.#counts[status === "suspended" ? "parked" : status] += 1;
  }

  #onOutage(error: unknown): void {
    this.#schedule.failed();
    if (!this.#isOutage) this.#options.onEvent({ type: "outage", error });
    this.#isOutage = true;
  }

  #onRecovered(): void {
    this.#isOutage = false;
    this.#recoveries += 1;
    this.#options.onEvent({ type: "recovered" });
  }

  /** Waits up to `drain` for the running steps, then aborts them and waits for the release of their locks. */
  async #end(): Promise<void> {
    const { drain, abort, onEvent } = this.#options;
    if (this.#running.size > 0) onEvent({ type: "draining", running: this.#running.size });
    await this.#settled(drain, abort);
    const running = this.#running.size + (this.#delivering ? 1 : 0);
    if (running === 0) return;
    this.#isAborted = true;
    onEvent({ type: "aborting", running });
    this.#stop.abort(new Error("the worker has stopped"));
    await this.#settled(ABORT_TIME);
  }

  /** Resolves when no run is active, after `span`, or when the signal aborts. */
  async #settled(span: Millis, signal?: AbortSignal): Promise<void> {
    using limit = deadline(span, () => new Error("the time is over"), signal);
    const settled = Promise.all([...this.#running, this.#delivering, this.#scheduling]);
    await race(settled, limit.signal).catch(() => {});
  }
}

function isOutage(error: unknown): boolean {
  return hasCode(error, "STORE_UNAVAILABLE", "STORE_REFUSED", "UNKNOWN_OUTCOME");
}
