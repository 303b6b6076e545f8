import { quantileSorted } from "simple-statistics";
import type { CriticalSection, Fault } from "./messages.ts";
import type { ShopTotals } from "./shop.ts";
import { claimsSafe, type Strategy } from "./strategy.ts";

/** The answer to an order. */
export interface OrderRecord {
  readonly orderId: string;
  readonly answer: "sold" | "sold-out";
  readonly millis: number;
}

/** A critical section of a worker, with its fault or refusal. */
export interface HoldInterval extends CriticalSection {
  readonly worker: number;
  readonly outcome: Fault | "refused" | undefined;
}

/** The observations of one strategy. */
export interface Observations {
  readonly strategy: Strategy;
  readonly stock: number;
  readonly totals: ShopTotals;
  readonly orders: readonly OrderRecord[];
  readonly holds: readonly HoldInterval[];
  readonly refused: number;
  readonly millis: number;
}

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

  /** Late writes refused by a fence. */
  readonly refused: number;

  /** Time from an order's first delivery to its answer. */
  readonly p50Millis: number;
  readonly p99Millis: number;
  readonly ordersPerSec: number;
}

/** Computes the report of a strategy. */
export function judge(observed: Observations): StrategyReport {
  const { strategy, stock, totals, orders } = observed;
  const sold = totals.sales.length;
  const buyers = new Set(totals.sales);
  const unrecorded = orders.filter(
    ({ orderId, answer }) => answer === "sold" && !buyers.has(orderId),
  );
  const millis = orders.map((order) => order.millis).sort((a, b) => a - b);
  return {
    name: strategy.name,
    claimsSafe: claimsSafe(strategy),
    sold,
    oversold: Math.max(0, sold - stock),
    lost: Math.abs(stock - totals.remaining - sold) + unrecorded.length,
    duplicates: sold - buyers.size,
    lowestStock: totals.lowest,
    overlaps: overlapping(observed.holds).length,
    refused: observed.refused,
    p50Millis: round(quantileSorted(millis, 0.5)),
    p99Millis: round(quantileSorted(millis, 0.99)),
    ordersPerSec: round((orders.length / observed.millis) * 1_000),
  };
}

/** Whether a strategy claims to be safe but is not. */
export function isBroken(report: StrategyReport): boolean {
  const { oversold, lost, duplicates } = report;
  return report.claimsSafe && oversold + lost + duplicates > 0;
}

/** Returns the holds that began before an earlier one had ended. */
export function overlapping(holds: readonly HoldInterval[]): readonly HoldInterval[] {
  let end = Number.NEGATIVE_INFINITY;
  return [...holds]
    .sort((a, b) => a.from - b.from)
    .filter(({ from, to }) => {
      const overlaps = from < end;
      end = Math.max(end, to);
      return overlaps;
    });
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
