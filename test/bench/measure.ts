import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import { median, quantile, quantileSorted } from "simple-statistics";

/** One thing to measure. */
export interface Contender {
  readonly name: string;

  /** Operations that one call of `run` does. Default 1. */
  readonly batch?: number;

  /** Calls that run at the same time. Default 1. */
  readonly clients?: number;

  /** `client` counts from 0. */
  run(client: number): Promise<unknown>;
}

/** How two contenders of a suite compare. */
export interface Comparison {
  readonly name: string;
  readonly of: string;
  readonly over: string;

  /** `time`: time per operation, smaller is better. `rate`: operations per second, larger is better. */
  readonly by: "time" | "rate";
  readonly aim: number;
}

export interface Result {
  readonly name: string;
  readonly perSec: number;
  readonly p50Millis: number;
  readonly p99Millis: number;
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
  const seen = new Map(contenders.map(({ name }) => [name, new Seen()]));
  for (const contender of contenders) await runBlock(contender, blockMillis, new Seen());
  for (let round = 0; round < rounds; round += 1) {
    const order = [...contenders];
    while (order.length > 0) {
      const [contender] = order.splice(uniformInt(random, 0, order.length - 1), 1);
      if (contender) await runBlock(contender, blockMillis, seenOf(seen, contender.name));
    }
    plan.onRound?.(round + 1);
  }
  return {
    results: contenders.map(({ name }) => seenOf(seen, name).result(name)),
    ratios: comparisons.map((comparison) => compare(comparison, seen)),
  };
}

/** What was seen of one contender. */
class Seen {
  readonly rates: number[] = [];
  readonly millis: number[] = [];

  result(name: string): Result {
    const sorted = [...this.millis].sort((a, b) => a - b);
    return {
      name,
      perSec: round(median(this.rates), 1),
      p50Millis: round(quantileSorted(sorted, 0.5), 3),
      p99Millis: round(quantileSorted(sorted, 0.99), 3),
    };
  }
}

function seenOf(seen: ReadonlyMap<string, Seen>, name: string): Seen {
  const found = seen.get(name);
  if (!found) throw new RangeError(`there is no contender "${name}"`);
  return found;
}

async function runBlock(contender: Contender, blockMillis: number, seen: Seen): Promise<void> {
  const { batch = 1, clients = 1 } = contender;
  const startedAt = performance.now();
  let count = 0;
  const client = async (_: unknown, number: number) => {
    while (performance.now() - startedAt < blockMillis) {
      const sentAt = performance.now();
      await contender.run(number);
      seen.millis.push(performance.now() - sentAt);
      count += batch;
    }
  };
  await Promise.all(Array.from({ length: clients }, client));
  seen.rates.push((count / (performance.now() - startedAt)) * 1_000);
}

function compare({ name, of, over, by, aim }: Comparison, seen: ReadonlyMap<string, Seen>): Ratio {
  const [ours, theirs] = [seenOf(seen, of).rates, seenOf(seen, over).rates];
  const ratios = ours.map((rate, i) => {
    const other = theirs[i] ?? Number.NaN;
    return by === "rate" ? rate / other : other / rate;
  });
  const value = round(median(ratios), 2);
  const [low, high] = interval(ratios);
  return { name, value, low, high, aim, met: by === "rate" ? value >= aim : value <= aim };
}

/** The 95 % bootstrap interval of the median. */
function interval(values: readonly number[]): [number, number] {
  const random = xoroshiro128plus(2);
  const medians = Array.from({ length: 2_000 }, () =>
    median(values.map(() => values[uniformInt(random, 0, values.length - 1)] ?? 0)),
  );
  return [round(quantile(medians, 0.025), 2), round(quantile(medians, 0.975), 2)];
}

function round(value: number, digits: number): number {
  return Number(value.toFixed(digits));
}
