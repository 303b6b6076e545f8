import { parentPort, workerData } from "node:worker_threads";
import type { Mutant } from "../mutants/mutant.ts";
import type { Fault } from "./faults.ts";
import { plant } from "./mutants.ts";
import { planOf } from "./plan.ts";
import type { Shrunk } from "./shrink.ts";
import type { Result } from "./simulate.ts";
import { installVirtualClock } from "./world.ts";

/** A range of seeds, whose events may be wanted, or one seed whose failure is to be shrunk. */
export type Task =
  | { readonly first: number; readonly count: number; readonly wantsEvents?: boolean }
  | { readonly shrink: number };

/** The sums over the schedules of a range. */
export interface Totals {
  readonly schedules: number;
  readonly faults: Partial<Record<Fault, number>>;
  readonly acquisitions: number;
  readonly operations: number;
  readonly unknown: number;
  readonly overlaps: number;
  readonly lateRefused: number;

  /** The first failing seed of the range, which ends there. */
  readonly failure?: { readonly seed: number; readonly violations: Result["violations"] };
}

export type Report =
  | { readonly totals: Totals }
  | { readonly events: readonly Result["events"][] }
  | { readonly shrunk: Shrunk };

if (workerData?.mutant) plant(workerData.mutant as Mutant);
installVirtualClock();
// Errors are common here, and their stacks cost time.
Error.stackTraceLimit = 0;
// Loaded after both: they change what it loads, and what it captures.
const { Simulator } = await import("./simulate.ts");
const { shrink } = await import("./shrink.ts");
const simulator = new Simulator();

parentPort?.on("message", async (task: Task) => {
  parentPort?.postMessage(await execute(task));
});

async function execute(task: Task): Promise<Report> {
  if ("shrink" in task) return { shrunk: await shrink(simulator, planOf(task.shrink)) };
  const { first, count, wantsEvents } = task;
  if (!wantsEvents) return { totals: await simulateAll(first, count) };
  const events = [];
  for (let i = 0; i < count; i += 1) events.push((await simulator.run(planOf(first + i))).events);
  return { events };
}

async function simulateAll(first: number, count: number): Promise<Totals> {
  const sums = { acquisitions: 0, operations: 0, unknown: 0, overlaps: 0, lateRefused: 0 };
  const faults: Partial<Record<Fault, number>> = {};
  for (let i = 0; i < count; i += 1) {
    const result = await simulator.run(planOf(first + i));
    for (const [fault, times] of result.faults) faults[fault] = (faults[fault] ?? 0) + times;
    for (const key of Object.keys(sums) as (keyof typeof sums)[]) sums[key] += result[key];
    const { violations } = result;
    if (violations.length > 0) {
      return { schedules: i + 1, faults, ...sums, failure: { seed: first + i, violations } };
    }
  }
  return { schedules: count, faults, ...sums };
}
