import { quantileSorted } from "simple-statistics";
import type { Fault, Section } from "./messages.ts";
import type { Books } from "./shop.ts";
import { claimsSafe, type Strategy } from "./strategy.ts";

/** What happened to one order. */
export interface OrderRecord {
  readonly orderId: string;
  readonly answer: "sold" | "sold-out";
  readonly millis: number;
}

/** The time in which one worker believed to be alone, and what became of it. */
export interface Stay extends Section {
  readonly worker: number;
  readonly fate: Fault | "refused" | undefined;
}

/** Everything that was seen of one strategy. */
export interface Observations {
  readonly strategy: Strategy;
  readonly stock: number;
  readonly books: Books;
  readonly orders: readonly OrderRecord[];
  readonly stays: readonly Stay[];
  readonly refused: number;
  readonly millis: number;
}

export interface StrategyReport {
  readonly name: string;
  readonly claimsSafe: boolean;

  /** Units sold, by the shop's books. */
  readonly sold: number;

  /** Units sold that were never there. */
  readonly oversold: number;

  /** Units by which the stock and the sales disagree, and orders answered "sold" without a sale. */
  readonly lost: number;

  /** Units sold twice to the same order. */
  readonly duplicates: number;
  readonly lowestStock: number;

  /** How often a holder began while another one still believed to hold the lock. */
  readonly overlaps: number;

  /** Late writes that a fence refused. */
  readonly refused: number;

  /** From an order's first delivery to its answer. */
  readonly p50Millis: number;
  readonly p99Millis: number;
  readonly ordersPerSec: number;
}

export function judge(seen: Observations): StrategyReport {
  const { strategy, stock, books, orders } = seen;
  const sold = books.sales.length;
  const buyers = new Set(books.sales);
  const unrecorded = orders.filter(
    ({ orderId, answer }) => answer === "sold" && !buyers.has(orderId),
  );
  const millis = orders.map((order) => order.millis).sort((a, b) => a - b);
  return {
    name: strategy.name,
    claimsSafe: claimsSafe(strategy),
    sold,
    oversold: Math.max(0, sold - stock),
    lost: Math.abs(stock - books.remaining - sold) + unrecorded.length,
    duplicates: sold - buyers.size,
    lowestStock: books.lowest,
    overlaps: overlapping(seen.stays).length,
    refused: seen.refused,
    p50Millis: round(quantileSorted(millis, 0.5)),
    p99Millis: round(quantileSorted(millis, 0.99)),
    ordersPerSec: round((orders.length / seen.millis) * 1_000),
  };
}

/** A strategy that claims to be safe, and is not. */
export function isBroken(report: StrategyReport): boolean {
  const { oversold, lost, duplicates } = report;
  return report.claimsSafe && oversold + lost + duplicates > 0;
}

/** The stays that began while an earlier one was not over. */
export function overlapping(stays: readonly Stay[]): readonly Stay[] {
  let end = Number.NEGATIVE_INFINITY;
  return [...stays]
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
