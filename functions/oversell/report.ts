import { quantileSorted } from "simple-statistics";
import { explain } from "./explain.ts";
import { holdsOf, type Observations } from "./observations.ts";
import { claimsSafe } from "./strategy.ts";
import { overlapping } from "./trace.ts";

export interface StrategyReport {
  readonly name: string;
  readonly claimsSafe: boolean;

  /** Units sold, as the shop recorded them. */
  readonly sold: number;

  /** Units sold beyond the stock. */
  readonly oversold: number;

  /** The difference between stock and sales, plus orders answered "sold" without a sale. */
  readonly lost: number;

  /** Units sold twice to the same order. */
  readonly duplicates: number;
  readonly lowestStock: number;

  /** Holds that started while another worker still considered itself the holder. */
  readonly overlaps: number;

  /** Late writes, refused by a fence or a version. */
  readonly refused: number;

  /** Orders that never get an answer, because the lock is held for ever. */
  readonly stuck: number;

  /** Time from an order's first delivery to its answer. */
  readonly p50Millis: number;
  readonly p99Millis: number;
  readonly ordersPerSec: number;

  /** The explanation of the result, in one sentence. */
  readonly why: string;
}

/** Returns the strategy's name and figures in the order of all tables. */
export function figuresOf(report: StrategyReport): readonly (string | number)[] {
  return [
    report.name,
    report.sold,
    report.oversold,
    report.lost,
    report.duplicates,
    report.lowestStock,
    report.overlaps,
    report.refused,
    report.stuck,
    report.p50Millis,
    report.p99Millis,
    report.ordersPerSec,
  ];
}

/** Computes the report of a strategy. */
export function judge(observations: Observations): StrategyReport {
  const { strategy, stock, totals, orders, handlings } = observations;
  const sold = totals.sales.length;
  const buyers = new Set(totals.sales);
  const unrecorded = orders.filter(
    ({ orderId, answer }) => answer === "sold" && !buyers.has(orderId),
  );
  const millis = orders.map((order) => order.millis).sort((a, b) => a - b);
  const quantile = (part: number) => (millis.length > 0 ? round(quantileSorted(millis, part)) : 0);
  const figures = {
    name: strategy.name,
    claimsSafe: claimsSafe(strategy),
    sold,
    oversold: Math.max(0, sold - stock),
    lost: Math.abs(stock - totals.remaining - sold) + unrecorded.length,
    duplicates: sold - buyers.size,
    lowestStock: totals.lowest,
    overlaps: overlapping(holdsOf(handlings)).length,
    refused: handlings.filter(({ answer }) => answer === "refused").length,
    stuck: observations.stuck,
    p50Millis: quantile(0.5),
    p99Millis: quantile(0.99),
    ordersPerSec: round((orders.length / observations.millis) * 1_000),
  };
  return { ...figures, why: explain(observations, figures) };
}

/** Whether units were oversold, lost or sold twice, or buyers wait for ever. */
export function isWrong({ oversold, lost, duplicates, stuck }: StrategyReport): boolean {
  return oversold + lost + duplicates + stuck > 0;
}

/** Whether a strategy claims to be safe but is not. */
export function isBroken(report: StrategyReport): boolean {
  return report.claimsSafe && isWrong(report);
}

/** Says whether a strategy or variant is safe. */
export function verdict(
  { claimsSafe }: { readonly claimsSafe: boolean },
  isBrokenPromise: boolean,
): string {
  if (isBrokenPromise) return "BROKEN: claims to be safe";
  return claimsSafe ? "safe" : "no";
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
