import { fileURLToPath } from "node:url";
import { median } from "simple-statistics";
import { decode } from "../../../core/steps/codec.ts";
import type { Runtime } from "../../../core/steps/index.ts";
import { startCli } from "../../support/cli.ts";
import { pause, until } from "../../support/until.ts";
import { fan } from "./workflows.ts";

const MODULE = fileURLToPath(new URL("workflows.ts", import.meta.url));

const CHILDREN = 2_000;

/** Children of a run that warms workers up. */
const WARM_UP = 500;

/** The numbers of workers in each round: none is always the first or the last. */
const ROUNDS = [
  [1, 2, 4],
  [4, 1, 2],
  [2, 4, 1],
] as const;

/** Measures the children of one run that so many workers share. */
export async function measureFanOut(
  runtime: Runtime,
  url: string,
  onProgress: (step: string) => void,
): Promise<Record<string, number>> {
  const rounds: Map<number, number>[] = [];
  for (const round of ROUNDS) {
    const seconds = new Map<number, number>();
    for (const workers of round) {
      onProgress(`${CHILDREN} children of one run, ${workers} workers`);
      await withWorkers(workers, ["--store", url], async () => {
        await warmUp(runtime, workers);
        seconds.set(workers, (await fanOut(runtime, CHILDREN)).seconds);
      });
    }
    rounds.push(seconds);
  }
  const medianOf = (of: (seconds: (workers: number) => number) => number) =>
    median(rounds.map((round) => of((workers) => round.get(workers) as number)));
  const rates = [1, 2, 4].map((workers): [string, number] => {
    const rate = medianOf((seconds) => CHILDREN / seconds(workers));
    return [`children per second, ${workers} workers`, Math.round(rate)];
  });
  const ratios = [2, 4].map((workers): [string, number] => {
    const ratio = medianOf((seconds) => seconds(workers) / seconds(1));
    return [`time of 2,000 children, ${workers} workers over 1`, Number(ratio.toFixed(2))];
  });
  return Object.fromEntries([...rates, ...ratios]);
}

/** Executes children until each of the workers has executed some, and as many again for each. */
async function warmUp(runtime: Runtime, workers: number): Promise<void> {
  await until(async () => (await fanOut(runtime, WARM_UP)).workers === workers);
  await fanOut(runtime, WARM_UP * workers);
}

/** Runs `work` beside worker processes. */
export async function withWorkers(
  count: number,
  stores: readonly string[],
  work: () => Promise<void>,
) {
  const workers = Array.from({ length: count }, () =>
    startCli(["worker", MODULE, "--quiet", ...stores]),
  );
  try {
    await work();
  } finally {
    for (const { child } of workers) child.kill("SIGTERM");
    await Promise.all(workers.map(({ finished }) => finished));
  }
}

interface FanOutReport {
  /** From the start of the run to its end. */
  readonly seconds: number;

  /** The number of workers that have executed children. */
  readonly workers: number;
}

async function fanOut(runtime: Runtime, children: number): Promise<FanOutReport> {
  const startedAt = performance.now();
  const { runId } = await runtime.start(fan, children, { id: crypto.randomUUID() });
  await until(async () => {
    await pause(20);
    return (await runtime.journal.find(runId))?.status === "completed";
  }, 600_000);
  const seconds = (performance.now() - startedAt) / 1_000;
  const run = await runtime.journal.show(runId);
  return { seconds, workers: decode<number>(run?.ending?.value) };
}
