import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import { median, quantile, quantileSorted, sum } from "simple-statistics";

/** The subject of a measurement: a function to repeat, or a reporter that measures itself. */
export type Contender = Repeated | Reporter;

export interface Repeated {
  readonly name: string;

  /** Operations per call of `run`. Default 1. */
  readonly batch?: number;

  /** Concurrent calls. Default 1. */
  readonly clients?: number;

  /** Runs one operation or batch. `client` counts from 0. */
  run(client: number): Promise<unknown>;
}

export interface Reporter {
  readonly name: string;

  /** Measures for about `blockMillis` milliseconds. */
  report(blockMillis: number): Promise<Block>;

  /** Profiles for about `millis` milliseconds. */
  profile?(options: ProfileOptions): Promise<Profiled>;
}

/** Where the time of one operation goes: microseconds by group of files, the largest first. */
export interface Profiled {
  readonly name: string;
  readonly operations: number;
  readonly parts: Readonly<Record<string, number>>;
}

export interface ProfileOptions {
  /** The folder of the profiles. */
  readonly folder: string;

  /** The time of each contender, in milliseconds. */
  readonly millis: number;
}

/** The measurements of one contender in one round. */
export interface Block {
  /** Operations per second. */
  readonly rate: number;

  /** The durations of the operations, or their mean. */
  readonly millis: readonly number[];

  /** The number of operations of each client. */
  readonly shares: readonly number[];

  /** The CPU time of this process per operation, in milliseconds: other load changes it less than it changes durations. */
  readonly cpuMillis?: number;

  /** The durations of the parts of an operation, by name. */
  readonly parts?: Readonly<Record<string, readonly number[]>>;
}

/**
 * The aim of a contender. `time` per operation and its median `p50`: smaller is better. `rate`, operations per second,
 * and `fairness`, Jain's index over the clients: larger is better. `added`: the difference of the medians, in
 * milliseconds, in place of a ratio. `cpu`: the CPU time of this process per operation, in milliseconds.
 */
export type Comparison = {
  readonly name: string;
  readonly of: string;
  readonly aim: number;
} & (
  | { readonly by: "time" | "p50" | "rate" | "added"; readonly over: string }
  | { readonly by: "fairness" }
  | { readonly by: "cpu" }
);

export interface Result {
  readonly name: string;
  readonly perSec: number;
  readonly p50Millis: number;
  readonly p99Millis: number;

  /** The median of the CPU time of this process per operation. */
  readonly cpuMillis?: number;

  /** The medians of the parts, in milliseconds. */
  readonly parts?: Readonly<Record<string, number>>;
}

export interface Ratio {
  readonly name: string;

  /** What is compared; `count` if a count is compared with its limit. */
  readonly by: Comparison["by"] | "count";

  /** The median over all rounds, with its 95 % interval. */
  readonly value: number;
  readonly low: number;
  readonly high: number;
  readonly aim: number;
  readonly met: boolean;
}

export interface Plan {
  readonly contenders: readonly Contender[];
  readonly comparisons: readonly Comparison[];
  readonly rounds: number;

  /** The time of each contender in each round, in milliseconds. */
  readonly blockMillis: number;
  readonly onRound?: (round: number) => void;
}

/**
 * Runs all contenders once per round, in changing order, so that other load of the machine affects all of them. Ratios
 * are computed within a round.
 */
export async function measure(plan: Plan): Promise<{ results: Result[]; ratios: Ratio[] }> {
  const { contenders, comparisons, rounds, blockMillis } = plan;
  const random = xoroshiro128plus(1);
  const seen: BlocksByName = new Map(contenders.map(({ name }) => [name, []]));
  for (const contender of contenders) await runBlock(contender, blockMillis);
  for (let round = 0; round < rounds; round += 1) {
    const order = [...contenders];
    while (order.length > 0) {
      const [contender] = order.splice(uniformInt(random, 0, order.length - 1), 1);
      if (contender) blocksOf(seen, contender.name).push(await runBlock(contender, blockMillis));
    }
    plan.onRound?.(round + 1);
  }
  return {
    results: contenders.map(({ name }) => toResult(name, blocksOf(seen, name))),
    ratios: comparisons.map((comparison) => toRatio(comparison, seen)),
  };
}

/** The blocks of each contender, by name. */
type BlocksByName = ReadonlyMap<string, Block[]>;

function blocksOf(seen: BlocksByName, name: string): Block[] {
  const found = seen.get(name);
  if (!found) throw new RangeError(`unknown contender "${name}"`);
  return found;
}

async function runBlock(contender: Contender, blockMillis: number): Promise<Block> {
  return "report" in contender ? contender.report(blockMillis) : repeat(contender, blockMillis);
}

/** Repeats the contender's operation for about `blockMillis` milliseconds. */
export async function repeat(
  { run, batch = 1, clients = 1 }: Repeated,
  blockMillis: number,
): Promise<Required<Omit<Block, "parts">>> {
  const startedAt = performance.now();
  const cpuBefore = process.cpuUsage();
  const millis: number[] = [];
  const client = async (_: unknown, number: number) => {
    let count = 0;
    while (performance.now() - startedAt < blockMillis) {
      const sentAt = performance.now();
      await run(number);
      millis.push(performance.now() - sentAt);
      count += batch;
    }
    return count;
  };
  const shares = await Promise.all(Array.from({ length: clients }, client));
  const { user, system } = process.cpuUsage(cpuBefore);
  const count = sum(shares);
  const rate = (count / (performance.now() - startedAt)) * 1_000;
  return { rate, millis, shares, cpuMillis: (user + system) / 1_000 / count };
}

function toResult(name: string, blocks: readonly Block[]): Result {
  const sorted = blocks.flatMap(({ millis }) => millis).sort((a, b) => a - b);
  const cpu = blocks.flatMap(({ cpuMillis = [] }) => cpuMillis);
  return {
    name,
    perSec: round(median(blocks.map(({ rate }) => rate)), 1),
    p50Millis: round(quantileSorted(sorted, 0.5), 3),
    p99Millis: round(quantileSorted(sorted, 0.99), 3),
    ...(cpu.length > 0 && { cpuMillis: round(median(cpu), 3) }),
    ...partsOf(blocks),
  };
}

function partsOf(blocks: readonly Block[]): Pick<Result, "parts"> {
  const names = Object.keys(blocks[0]?.parts ?? {});
  if (names.length === 0) return {};
  const all = (name: string) => blocks.flatMap(({ parts }) => parts?.[name] ?? []);
  return { parts: Object.fromEntries(names.map((name) => [name, round(median(all(name)), 3)])) };
}

function toRatio(comparison: Comparison, seen: BlocksByName): Ratio {
  const { name, by, aim } = comparison;
  const values = valuesOf(comparison, seen);
  const value = round(median(values), 3);
  const [low, high] = interval(values);
  return { name, by, value, low, high, aim, met: isMet(by, value, aim) };
}

/** Whether a larger value is better: otherwise a smaller one is. */
export function isLargerBetter(by: Ratio["by"]): boolean {
  return by === "rate" || by === "fairness";
}

function isMet(by: Ratio["by"], value: number, aim: number): boolean {
  return isLargerBetter(by) ? value >= aim : value <= aim;
}

/** Compares counts with their limits. */
export function checkLimits(
  limits: Readonly<Record<string, number>>,
  counts: Readonly<Record<string, number>>,
): Ratio[] {
  return Object.entries(limits).map(([name, aim]) => {
    const value = counts[name];
    if (value === undefined) throw new RangeError(`unknown count "${name}"`);
    const by = "count";
    return { name, by, value, low: value, high: value, aim, met: isMet(by, value, aim) };
  });
}

/** Returns the value of the comparison in each round. */
function valuesOf(comparison: Comparison, seen: BlocksByName): number[] {
  const ours = blocksOf(seen, comparison.of);
  if (comparison.by === "fairness") return ours.map(({ shares }) => fairness(shares));
  if (comparison.by === "cpu") return ours.map(({ cpuMillis = Number.NaN }) => cpuMillis);
  const theirs = blocksOf(seen, comparison.over);
  const value = {
    rate: (of: Block, over: Block) => of.rate / over.rate,
    time: (of: Block, over: Block) => over.rate / of.rate,
    p50: (of: Block, over: Block) => median([...of.millis]) / median([...over.millis]),
    added: (of: Block, over: Block) => median([...of.millis]) - median([...over.millis]),
  }[comparison.by];
  return ours.map((block, i) => value(block, theirs[i] as Block));
}

/** Returns Jain's index: 1 if all shares are equal, 1/n if one of n clients has everything. */
function fairness(shares: readonly number[]): number {
  const squares = shares.map((share) => share ** 2);
  return sum(shares) ** 2 / (shares.length * sum(squares));
}

/** Returns the 95 % bootstrap interval of the median. */
function interval(values: readonly number[]): [number, number] {
  const random = xoroshiro128plus(2);
  const medians = Array.from({ length: 2_000 }, () =>
    median(values.map(() => values[uniformInt(random, 0, values.length - 1)] ?? 0)),
  );
  return [round(quantile(medians, 0.025), 3), round(quantile(medians, 0.975), 3)];
}

function round(value: number, digits: number): number {
  return Number(value.toFixed(digits));
}
