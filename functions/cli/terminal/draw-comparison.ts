import { formatDuration } from "../../display/format-duration.ts";
import type { BreakName, BreakResult } from "../../oversell/compare/breaks.ts";
import type { ComparedStore } from "../../oversell/compare/compare.ts";
import { truncate } from "./draw-timeline.ts";

const EVENTS = ["crash", "failover", "clock", "memory"] as const satisfies readonly BreakName[];

const HEAD = ["store", "hand-over", "slowest", "in order", ...EVENTS];
const WIDTHS: readonly number[] = [17, 9, 8, 8, 5, 8, 5, 6];

const RESULTS: Readonly<Record<BreakResult | "untried", string>> = {
  held: "held",
  lost: "lost",
  two: "TWO",
  away: "away",
  untried: "–",
};

export const COMPARISON_LEGEND = `hand-over: from a release until the next client has the lock; median and slowest
in order: waiters of other clients that got the lock in the order of arrival
crash: all servers killed, then started; failover: one server after another
clock: the servers' clocks + 60 s; memory: used up under allkeys-lru
held: nobody else got the lock; lost: its holder knew; away: no answer
TWO: a second client got it while the first still counted on it: check fences`;

/** The head of the table, which has at most 80 columns. */
export const COMPARISON_HEAD = toLine(HEAD);

/** Draws a store as a line of the table, and why its comparison has ended early below it. */
export function drawCompared(compared: ComparedStore): string {
  const { store, median, slowest, inOrder, waiters, breaks, failed } = compared;
  const line = toLine([
    store,
    median === undefined ? "–" : formatDuration(median),
    slowest === undefined ? "–" : formatDuration(slowest),
    inOrder === undefined ? "–" : `${inOrder}/${waiters}`,
    ...EVENTS.map((event) => RESULTS[breaks[event] ?? "untried"]),
  ]);
  if (failed === undefined) return line;
  return `${line}\n  failed: ${truncate(failed.split("\n", 1).join(), 70)}`;
}

function toLine(cells: readonly string[]): string {
  const padded = cells.map((cell, i) => {
    const width = WIDTHS[i] ?? 0;
    const text = truncate(cell, width);
    return i === 0 ? text.padEnd(width) : text.padStart(width);
  });
  return padded.join("  ");
}
