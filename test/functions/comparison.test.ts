import { expect, test } from "vitest";
import { drawComparison } from "../../functions/cli/terminal/draw-comparison.ts";

test("a comparison of stores is drawn in 80 columns, with what became of a held lock", () => {
  const measured = { median: 2.4, slowest: 61_000, inOrder: 40, waiters: 40 };
  const url = `mysql://${"x".repeat(100)}`;
  const lines = drawComparison([
    { store: "redis", ...measured, breaks: { crash: "two", clock: "lost", memory: "away" } },
    { store: "zookeeper-cluster", ...measured, breaks: { crash: "held", failover: "held" } },
    { store: url, ...measured, inOrder: 2, breaks: {} },
  ]).split("\n");
  expect(lines.slice(0, 4)).toEqual([
    "store              hand-over   slowest  in order  crash  failover  clock  memory",
    "redis                   2 ms   1 m 1 s     40/40    TWO         –   lost    away",
    "zookeeper-cluster       2 ms   1 m 1 s     40/40   held      held      –       –",
    "mysql://xxxxxxxx…       2 ms   1 m 1 s      2/40      –         –      –       –",
  ]);
  expect(Math.max(...lines.map((line) => [...line].length))).toBeLessThanOrEqual(80);
});
