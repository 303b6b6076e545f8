import { SingleBar } from "cli-progress";
import { note, print, warn } from "../../functions/cli/terminal/output.ts";
import { table } from "../../functions/cli/terminal/table.ts";
import { checkLimits, measure, type Profiled, type Result } from "./measure.ts";
import { profile } from "./profile.ts";
import type { Contest, SuiteOptions, SuiteReport } from "./suite.ts";
import { SUITES } from "./suites.ts";
import { missedAims, writeProfiles } from "./written.ts";

interface RunOptions extends SuiteOptions {
  readonly suite: string;
  readonly rounds: number;

  /** Milliseconds of one contender in one round. */
  readonly block: number;
  readonly json: boolean;

  /** The folder of profiles, which are made in place of a comparison. */
  readonly profile?: string | undefined;

  /** Whether the profiles of the suite's missed aims are written into docs/benchmarks.json and its page. */
  readonly write: boolean;
}

const bar = new SingleBar({ format: "{bar} {percentage}%", clearOnComplete: true });

/** Compares the contenders of a suite, or profiles them, and prints the results. */
export async function runSuite(options: RunOptions): Promise<void> {
  const setUp = SUITES[options.suite];
  if (!setUp) throw new RangeError(`unknown suite ${options.suite}`);
  const contest = await setUp(note, options);
  for (const each of contest.notes ?? []) warn(each);
  try {
    if (options.profile === undefined) await compare(contest, options);
    else await profileAll(contest, options.profile, options);
  } finally {
    bar.stop();
    await contest.close();
  }
}

async function compare(
  contest: Contest,
  { suite, rounds, block, json }: RunOptions,
): Promise<void> {
  const { server, notes = [], counts = {}, limits = {}, contenders, comparisons } = contest;
  bar.start(rounds, 0);
  const { results, ratios: measured } = await measure({
    contenders,
    comparisons,
    rounds,
    blockMillis: block,
    onRound: (round) => bar.update(round),
  });
  bar.stop();
  const ratios = [...checkLimits(limits, counts), ...measured];
  if (json) {
    print(JSON.stringify({ suite, server, notes, counts, results, ratios } satisfies SuiteReport));
    return;
  }
  print(`${suite}, on ${server}\n`);
  print(table(["", "per second", "p50 ms", "p99 ms", "CPU ms", "parts"], results.map(toRow)));
  const verdicts = ratios.map(({ name, value, low, high, aim, met }) => [
    name,
    value,
    `${low} to ${high}`,
    aim,
    met ? "met" : "not met",
  ]);
  if (Object.keys(counts).length > 0) print(table(["", "count"], Object.entries(counts)));
  print(table(["ratio", "value", "95 % interval", "aim", ""], verdicts));
}

function toRow({ name, perSec, p50Millis, p99Millis, cpuMillis, parts = {} }: Result) {
  const described = Object.entries(parts).map(([part, millis]) => `${part} ${millis}`);
  return [name, perSec, p50Millis, p99Millis, cpuMillis ?? "", described.join(", ")];
}

/** Profiles the contenders, one after another: those that run in this process, and others that profile themselves. */
async function profileAll(
  { server, contenders, comparisons }: Contest,
  folder: string,
  { suite, rounds, block, json, write }: RunOptions,
): Promise<void> {
  const missed = write ? await missedAims(suite) : undefined;
  const shown = comparisons
    .filter(({ name }) => missed?.has(name) ?? true)
    .flatMap((each) => ("over" in each ? [each.of, each.over] : [each.of]));
  const repeated = contenders
    .filter((contender) => "run" in contender || contender.profile !== undefined)
    .filter(({ name }) => !missed || shown.includes(name));
  bar.start(repeated.length, 0);
  const profiles: Profiled[] = [];
  for (const contender of repeated) {
    const options = { folder, millis: rounds * block };
    const own = "run" in contender ? profile(contender, options) : contender.profile?.(options);
    if (own) profiles.push(await own);
    bar.increment();
  }
  bar.stop();
  if (write) await writeProfiles(suite, profiles);
  if (json) {
    print(JSON.stringify({ suite, server, folder, profiles }));
    return;
  }
  print(`${suite}, on ${server}: profiles in ${folder}\n`);
  const rows = profiles.flatMap(({ name, parts }) =>
    Object.entries(parts).map(([part, micros], i) => [i === 0 ? name : "", part, micros]),
  );
  print(table(["", "part", "microseconds per operation"], rows));
}
