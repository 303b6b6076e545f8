import { writeFile } from "node:fs/promises";
import { availableParallelism, cpus } from "node:os";
import { fileURLToPath } from "node:url";
import { note, print } from "../../functions/cli/terminal/output.ts";
import { run } from "../../infra/servers/processes.ts";
import { measuredCode } from "../support/commit.ts";
import type { GrowthReport } from "./growth/growth.ts";
import { type Benchmarks, barsOf, benchmarksPage } from "./page.ts";
import { installPeers, loadPeer } from "./peers.ts";
import type { SuiteReport } from "./suite.ts";
import { SUITES } from "./suites.ts";
import { inDocs, writePage } from "./written.ts";

interface Options {
  readonly rounds: number;

  /** Milliseconds of one contender in one round. */
  readonly block: number;

  /** The time of the suite on growth, in seconds. */
  readonly seconds: number;
  readonly json: boolean;

  /** Whether docs/benchmarks.json, and the page and the charts of it, are written. */
  readonly write: boolean;
}

interface Charts {
  drawGrowth(series: GrowthReport["series"]): string;
  drawRatios(bars: ReturnType<typeof barsOf>): string;
}

const MAIN = fileURLToPath(new URL("./main.ts", import.meta.url));

/** Runs all suites, each in a process of its own: a process can have one DBOS. */
export async function runAll({ rounds, block, seconds, json, write }: Options): Promise<void> {
  const code = measuredCode();
  const suites: SuiteReport[] = [];
  const measured = ["--rounds", String(rounds), "--block", String(block)];
  for (const name of Object.keys(SUITES)) suites.push(await report(name, measured));
  const growth = await report<GrowthReport>("growth", ["--seconds", String(seconds)]);
  const benchmarks: Benchmarks = {
    date: new Date().toISOString().slice(0, 10),
    ...code,
    node: process.versions.node,
    processors: availableParallelism(),
    processor: cpus()[0]?.model ?? "",
    ...{ rounds, block, suites, growth },
  };
  if (write) await writeAll(benchmarks);
  print(json ? JSON.stringify(benchmarks) : benchmarksPage(benchmarks));
}

async function report<R = SuiteReport>(suite: string, args: readonly string[]): Promise<R> {
  note(`suite ${suite}`);
  return JSON.parse(await run(process.execPath, [MAIN, "--suite", suite, "--json", ...args]));
}

async function writeAll(benchmarks: Benchmarks): Promise<void> {
  await installPeers(note);
  const { drawGrowth, drawRatios } = await loadPeer<Charts>("charts");
  await writePage(benchmarks);
  await writeFile(inDocs("pictures/ratios.svg"), drawRatios(barsOf(benchmarks)));
  await writeFile(inDocs("pictures/growth.svg"), drawGrowth(benchmarks.growth.series));
  const missed = benchmarks.suites.filter(({ ratios }) => ratios.some(({ met }) => !met));
  for (const { suite } of missed) {
    note(`profiles of suite ${suite}`);
    await run(process.execPath, [MAIN, "--suite", suite, "--json", "--profile", "--write"]);
  }
}
