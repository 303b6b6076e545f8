import { availableParallelism } from "node:os";
import { Worker } from "node:worker_threads";
import type { CallEvent } from "../models/replay.ts";
import type { Mutant } from "../mutants/mutant.ts";
import type { Check } from "./history.ts";
import type { Shrunk } from "./shrink.ts";
import type { Report, Task, Totals } from "./worker.ts";

/** The schedules of one task: between two of them, progress is shown and a mutant's search ends. */
const CHUNK = 100;

/** A thread on a virtual clock, with the product or a mutant of it. */
class SimulationWorker implements AsyncDisposable {
  readonly #worker: Worker;

  constructor(mutant?: Mutant) {
    this.#worker = new Worker(new URL("./worker.ts", import.meta.url), {
      workerData: { mutant },
      execArgv: [],
      // Several schedules fit into it, and few of their objects are copied.
      resourceLimits: { maxYoungGenerationSizeMb: 96 },
    });
  }

  simulate(first: number, count: number): Promise<Totals> {
    return this.#ask({ first, count }, (report) =>
      "totals" in report ? report.totals : undefined,
    );
  }

  record(first: number, count: number): Promise<readonly (readonly CallEvent[])[]> {
    return this.#ask({ first, count, wantsEvents: true }, (report) =>
      "events" in report ? report.events : undefined,
    );
  }

  shrink(seed: number): Promise<Shrunk> {
    return this.#ask({ shrink: seed }, (report) =>
      "shrunk" in report ? report.shrunk : undefined,
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#worker.terminate();
  }

  #ask<T>(task: Task, answerOf: (report: Report) => T | undefined): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const onMessage = (report: Report) => {
      const answer = answerOf(report);
      if (answer !== undefined) resolve(answer);
    };
    this.#worker.once("message", onMessage).once("error", reject);
    this.#worker.postMessage(task);
    return promise.finally(() => {
      this.#worker.off("message", onMessage).off("error", reject);
    });
  }
}

export interface SimulationOptions {
  readonly first: number;

  /** Ends after this many schedules, or when the signal aborts. */
  readonly schedules: number;
  readonly signal?: AbortSignal;
  readonly workers?: number;
  readonly onProgress?: (schedules: number) => void;
}

export interface Failure {
  readonly seed: number;
  readonly shrunk: Shrunk;
}

/** Executes the schedules of consecutive seeds on all processors, up to the first failing one, which is shrunk. */
export async function simulate({
  first,
  schedules,
  signal,
  workers = availableParallelism(),
  onProgress = () => {},
}: SimulationOptions): Promise<{ readonly totals: Totals; readonly failure?: Failure }> {
  let totals = noTotals();
  let next = first;
  const work = async () => {
    await using worker = new SimulationWorker();
    while (next < first + schedules && !signal?.aborted && !totals.failure) {
      const count = Math.min(CHUNK, first + schedules - next);
      next += count;
      // Awaited first: other workers change the totals meanwhile.
      const found = await worker.simulate(next - count, count);
      totals = sum(totals, found);
      onProgress(totals.schedules);
    }
  };
  await Promise.all(Array.from({ length: workers }, work));
  const seed = totals.failure?.seed;
  return { totals, ...(seed !== undefined && { failure: { seed, shrunk: await replay(seed) } }) };
}

/** Executes the schedule of a seed, and the smallest one that fails like it. */
export async function replay(seed: number): Promise<Shrunk> {
  await using worker = new SimulationWorker();
  return await worker.shrink(seed);
}

/** Executes the schedules of consecutive seeds, and returns the events of each one. */
export async function record(
  { first, schedules }: Pick<SimulationOptions, "first" | "schedules">,
  mutant?: Mutant,
): Promise<readonly (readonly CallEvent[])[]> {
  await using worker = new SimulationWorker(mutant);
  return await worker.record(first, schedules);
}

/** The end of the hunt for a mutant. */
export interface Hunt {
  readonly mutant: string;

  /** The schedules up to the one that caught it. */
  readonly schedules: number;

  /** Undefined: it was not caught. */
  readonly caughtBy: Check | undefined;
}

/** Hunts each mutant with the schedules of consecutive seeds, several mutants at a time. */
export async function hunt(
  mutants: readonly Mutant[],
  {
    first,
    schedules,
    workers = availableParallelism(),
    onProgress = () => {},
  }: Omit<SimulationOptions, "signal">,
): Promise<readonly Hunt[]> {
  const left = [...mutants];
  const hunts = new Map<string, Hunt>();
  const work = async () => {
    for (let mutant = left.shift(); mutant; mutant = left.shift()) {
      hunts.set(mutant.name, await huntOne(mutant, first, schedules));
      onProgress(hunts.size);
    }
  };
  await Promise.all(Array.from({ length: workers }, work));
  return mutants.map(({ name }) => hunts.get(name) as Hunt);
}

async function huntOne(mutant: Mutant, first: number, schedules: number): Promise<Hunt> {
  await using worker = new SimulationWorker(mutant);
  let done = 0;
  while (done < schedules) {
    const totals = await worker.simulate(first + done, Math.min(CHUNK, schedules - done));
    done += totals.schedules;
    const caughtBy = totals.failure?.violations[0]?.check;
    if (caughtBy) return { mutant: mutant.name, schedules: done, caughtBy };
  }
  return { mutant: mutant.name, schedules: done, caughtBy: undefined };
}

function noTotals(): Totals {
  const none = { acquisitions: 0, operations: 0, unknown: 0, overlaps: 0, lateRefused: 0 };
  return { schedules: 0, faults: {}, ...none };
}

function sum(a: Totals, b: Totals): Totals {
  const faults = { ...a.faults };
  for (const [fault, count] of Object.entries(b.faults) as [keyof typeof faults, number][]) {
    faults[fault] = (faults[fault] ?? 0) + count;
  }
  const [failure] = [a.failure, b.failure]
    .filter((one) => one !== undefined)
    .sort((one, other) => one.seed - other.seed);
  return {
    schedules: a.schedules + b.schedules,
    faults,
    acquisitions: a.acquisitions + b.acquisitions,
    operations: a.operations + b.operations,
    unknown: a.unknown + b.unknown,
    overlaps: a.overlaps + b.overlaps,
    lateRefused: a.lateRefused + b.lateRefused,
    ...(failure && { failure }),
  };
}
