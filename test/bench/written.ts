import { readFile, writeFile } from "node:fs/promises";
import { writeScorecard } from "../scorecard/write.ts";
import type { Profiled } from "./measure.ts";
import { type Benchmarks, benchmarksPage } from "./page.ts";
import type { SuiteReport } from "./suite.ts";

/** The file in the folder of the documentation. */
export function inDocs(name: string): URL {
  return new URL(`../../docs/${name}`, import.meta.url);
}

/** Writes docs/benchmarks.json, the page of it, and the scorecard. */
export async function writePage(benchmarks: Benchmarks): Promise<void> {
  await writeFile(inDocs("benchmarks.json"), `${JSON.stringify(benchmarks, null, 1)}\n`);
  await writeFile(inDocs("benchmarks.md"), benchmarksPage(benchmarks));
  writeScorecard();
}

/** Puts a report in the place of the suite's last one, or behind the others. */
export function withReport(
  suites: readonly SuiteReport[],
  report: SuiteReport,
): readonly SuiteReport[] {
  const isKnown = suites.some(({ suite }) => suite === report.suite);
  if (!isKnown) return [...suites, report];
  return suites.map((known) => (known.suite === report.suite ? report : known));
}

/** Returns the names of the comparisons whose aims the published results miss. */
export async function missedAims(suite: string): Promise<ReadonlySet<string>> {
  const { suites } = await published();
  const ratios = suites.find((report) => report.suite === suite)?.ratios ?? [];
  return new Set(ratios.filter(({ met }) => !met).map(({ name }) => name));
}

/** Replaces the profiles of a suite in the published results. */
export async function writeProfiles(suite: string, profiles: readonly Profiled[]): Promise<void> {
  const benchmarks = await published();
  const suites = benchmarks.suites.map((report) =>
    report.suite === suite ? { ...report, profiles } : report,
  );
  await writePage({ ...benchmarks, suites });
}

/** Reads the published results. */
export async function published(): Promise<Benchmarks> {
  return JSON.parse(await readFile(inDocs("benchmarks.json"), "utf8"));
}
