import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import { median, quantile, quantileSorted, sum } from "simple-statistics";

/** One thing to measure: again and again, or as it does it by itself. */
export type Contender = Repeated | Reporter;

export interface Repeated {
  readonly name: string;

  /** Operations that one call of `run` does. Default 1. */
  readonly batch?: number;

  /** Calls that run at the same time. Default 1. */
  readonly clients?: number;

  /** `client` counts from 0. */
  run(client: number): Promise<unknown>;
}

export interface Reporter {
  readonly name: string;

  /** Works for about so many milliseconds. */
  report(blockMillis: number): Promise<Block>;
}

/** What was seen of one contender in one round. */
export interface Block {
  /** Operations per second. */
  readonly rate: number;

  /** How long they took: each of them, or a mean. */
  readonly millis: readonly number[];

  /** How many operations each client got. */
  readonly shares: readonly number[];

  /** Of what has parts, how long each of them took, by its name. */
  readonly parts?: Readonly<Record<string, readonly number[]>>;
}

/**
 * What a contender of a suite is held to. `time`: per operation, and `p50`: the median of it, smaller is
 * better. `rate`: operations per second, and `fairness`: Jain's index over its clients, larger is better.
 * `added`: by how many milliseconds its median is above the other's, and no ratio.
 */
export type Comparison = {
  readonly name: string;
  readonly of: string;
  readonly aim: number;
} & (
  | { readonly by: "time" | "p50" | "rate" | "added"; readonly over: string }
  | { readonly by: "fairness" }
);

export interface Result {
  readonly name: string;
  readonly perSec: number;
  readonly p50Millis: number;
  readonly p99Millis: number;

  /** The medians of its parts, in milliseconds. */
  readonly parts?: Readonly<Record<string, number>>;
}

export interface Ratio {
  readonly name: string;

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

  /** How long each contender runs in each round, in milliseconds. */
  readonly blockMillis: number;
  readonly onRound?: (round: number) => void;
}

/**
 * Lets the contenders take turns, a block each per round, so that whatever else the machine does falls on all
 * of them; ratios are taken within a round. The order changes from round to round.
 */
export async function measure(plan: Plan): Promise<{ results: Result[]; ratios: Ratio[] }> {
  const { contenders, comparisons, rounds, blockMillis } = plan;
  const random = xoroshiro128plus(1);
  const seen: Seen = new Map(contenders.map(({ name }) => [name, []]));
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

/** All blocks, by contender. */
type Seen = ReadonlyMap<string, Block[]>;

function blocksOf(seen: Seen, name: string): Block[] {
  const found = seen.get(name);
  if (!found) throw new RangeError(`there is no contender "${name}"`);
  return found;
}

async function runBlock(contender: Contender, blockMillis: number): Promise<Block> {
  if ("report" in contender) return contender.report(blockMillis);
  const { batch = 1, clients = 1 } = contender;
  const startedAt = performance.now();
  const millis: number[] = [];
  const client = async (_: unknown, number: number) => {
    let count = 0;
    while (performance.now() - startedAt < blockMillis) {
      const sentAt = performance.now();
      await contender.run(number);
      millis.push(performance.now() - sentAt);
      count += batch;
    }
    return count;
  };
  const shares = await Promise.all(Array.from({ length: clients }, client));
  return { rate: (sum(shares) / (performance.now() - startedAt)) * 1_000, millis, shares };
}

function toResult(name: string, blocks: readonly Block[]): Result {
  const sorted = blocks.flatMap(({ millis }) => millis).sort((a, b) => a - b);
  return {
    name,
    perSec: round(median(blocks.map(({ rate }) => rate)), 1),
    p50Millis: round(quantileSorted(sorted, 0.5), 3),
    p99Millis: round(quantileSorted(sorted, 0.99), 3),
    ...partsOf(blocks),
  };
}

function partsOf(blocks: readonly Block[]): Pick<Result, "parts"> {
  const names = Object.keys(blocks[0]?.parts ?? {});
  if (names.length === 0) return {};
  const all = (name: string) => blocks.flatMap(({ parts }) => parts?.[name] ?? []);
  return { parts: Object.fromEntries(names.map((name) => [name, round(median(all(name)), 3)])) };
}

function toRatio(comparison: Comparison, seen: Seen): Ratio {
  const { name, by, aim } = comparison;
  const values = valuesOf(comparison, seen);
  const value = round(median(values), 3);
  const [low, high] = interval(values);
  const isMoreBetter = by === "rate" || by === "fairness";
  return { name, value, low, high, aim, met: isMoreBetter ? value >= aim : value <= aim };
}

/** Whether what was counted is within its limits. */
export function heldTo(
  limits: Readonly<Record<string, number>>,
  counts: Readonly<Record<string, number>>,
): Ratio[] {
  return Object.entries(limits).map(([name, aim]) => {
    const value = counts[name];
    if (value === undefined) throw new RangeError(`there is no count "${name}"`);
    return { name, value, low: value, high: value, aim, met: value <= aim };
  });
}

/** One for each round. */
function valuesOf(comparison: Comparison, seen: Seen): number[] {
  const ours = blocksOf(seen, comparison.of);
  if (comparison.by === "fairness") return ours.map(({ shares }) => fairness(shares));
  const theirs = blocksOf(seen, comparison.over);
  const value = {
    rate: (of: Block, over: Block) => of.rate / over.rate,
    time: (of: Block, over: Block) => over.rate / of.rate,
    p50: (of: Block, over: Block) => median([...of.millis]) / median([...over.millis]),
    added: (of: Block, over: Block) => median([...of.millis]) - median([...over.millis]),
  }[comparison.by];
  return ours.map((block, i) => value(block, theirs[i] as Block));
}

/** Jain's index: 1 when all shares are equal, 1/n when one of n has everything. */
function fairness(shares: readonly number[]): number {
  const squares = shares.map((share) => share ** 2);
  return sum(shares) ** 2 / (shares.length * sum(squares));
}

/** The 95 % bootstrap interval of the median. */
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
