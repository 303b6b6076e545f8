import { writeFile } from "node:fs/promises";
import { availableParallelism, cpus } from "node:os";
import { fileURLToPath } from "node:url";
import { note, print } from "../../functions/cli/terminal/output.ts";
import { run } from "../../infra/servers/processes.ts";
import { measuredCode } from "../support/commit.ts";
import { GROWTH, type GrowthReport } from "./growth/growth.ts";
import { type Benchmarks, barsOf, benchmarksPage } from "./page.ts";
import { installPeers, loadPeer } from "./peers.ts";
import type { Measurement, SuiteReport } from "./suite.ts";
import { SUITES } from "./suites.ts";
import { inDocs, published, withReport, writePage } from "./written.ts";

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
export async function runAll(options: Options): Promise<void> {
  const measurement = measurementNow(options);
  const suites: SuiteReport[] = [];
  for (const name of Object.keys(SUITES)) suites.push(await report(name, options));
  const growth = await report<GrowthReport>(GROWTH, options);
  await finish({ ...measurement, ...machine(), suites, growth }, Object.keys(SUITES), options);
}

/** Measures some suites again, and puts them in the place of their last results. */
export async function runSome(names: readonly string[], options: Options): Promise<void> {
  const last = await published();
  const { node, processors, processor } = machine();
  if (node !== last.node || processors !== last.processors || processor !== last.processor)
    throw new Error("the last results are of another machine or Node; run --suite all");
  const measured = measurementNow(options);
  let { suites, growth } = last;
  for (const name of names) {
    if (name === GROWTH) growth = { ...(await report<GrowthReport>(name, options)), measured };
    else suites = withReport(suites, { ...(await report(name, options)), measured });
  }
  await finish({ ...last, suites, growth }, names, options);
}

function measurementNow({ rounds, block }: Options): Measurement {
  return { date: new Date().toISOString().slice(0, 10), ...measuredCode(), rounds, block };
}

function machine() {
  return {
    node: process.versions.node,
    processors: availableParallelism(),
    processor: cpus()[0]?.model ?? "",
  };
}

async function report<R = SuiteReport>(
  suite: string,
  { rounds, block, seconds }: Options,
): Promise<R> {
  note(`suite ${suite}`);
  const args =
    suite === GROWTH
      ? ["--seconds", String(seconds)]
      : ["--rounds", String(rounds), "--block", String(block)];
  return JSON.parse(await run(process.execPath, [MAIN, "--suite", suite, "--json", ...args]));
}

/** Prints the results, and writes them if asked to, with profiles of the measured suites. */
async function finish(
  benchmarks: Benchmarks,
  measured: readonly string[],
  { json, write }: Options,
): Promise<void> {
  if (write) await writeAll(benchmarks, measured);
  print(json ? JSON.stringify(benchmarks) : benchmarksPage(benchmarks));
}

async function writeAll(benchmarks: Benchmarks, measured: readonly string[]): Promise<void> {
  await installPeers(note);
  const { drawGrowth, drawRatios } = await loadPeer<Charts>("charts");
  await writePage(benchmarks);
  await writeFile(inDocs("pictures/ratios.svg"), drawRatios(barsOf(benchmarks)));
  await writeFile(inDocs("pictures/growth.svg"), drawGrowth(benchmarks.growth.series));
  const missed = benchmarks.suites.filter(
    ({ suite, ratios }) => measured.includes(suite) && ratios.some(({ met }) => !met),
  );
  for (const { suite } of missed) {
    note(`profiles of suite ${suite}`);
    await run(process.execPath, [MAIN, "--suite", suite, "--json", "--profile", "--write"]);
  }
}
