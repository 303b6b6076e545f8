import type { BreakName, BreakResult } from "../../oversell/compare/breaks.ts";
import type { ComparedStore } from "../../oversell/compare/compare.ts";
import { truncate } from "./draw-timeline.ts";
import { formatDuration } from "./duration.ts";

const EVENTS = ["crash", "failover", "clock", "memory"] as const satisfies readonly BreakName[];

const HEAD = ["store", "hand-over", "slowest", "in order", ...EVENTS];
const WIDTHS: readonly number[] = [17, 9, 8, 8, 5, 8, 5, 6];

const RESULTS: Readonly<Record<BreakResult, string>> = {
  held: "held",
  lost: "lost",
  two: "TWO",
  away: "away",
};

const LEGEND = `hand-over: from a release until the next client has the lock; median and slowest
in order: waiters of other clients that got the lock in the order of arrival
crash: all servers killed, then started; failover: one server after another
clock: the servers' clocks + 60 s; memory: used up under allkeys-lru
held: nobody else got the lock; lost: its holder knew; away: no answer
TWO: a second client got it while the first still counted on it: check fences`;

/** Draws the comparison as lines of at most 80 columns. */
export function drawComparison(stores: readonly ComparedStore[]): string {
  const rows = stores.map(({ store, median, slowest, inOrder, waiters, breaks }) => [
    store,
    formatDuration(median),
    formatDuration(slowest),
    `${inOrder}/${waiters}`,
    ...EVENTS.map((event) => {
      const result = breaks[event];
      return result === undefined ? "–" : RESULTS[result];
    }),
  ]);
  const lines = [HEAD, ...rows].map((cells) =>
    cells
      .map((cell, i) => {
        const width = WIDTHS[i] ?? 0;
        const text = truncate(cell, width);
        return i === 0 ? text.padEnd(width) : text.padStart(width);
      })
      .join("  "),
  );
  return [...lines, "", LEGEND].join("\n");
}
