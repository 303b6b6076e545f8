import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import {
  COMPARISON_HEAD,
  COMPARISON_LEGEND,
  drawCompared,
} from "../../functions/cli/terminal/draw-comparison.ts";
import type { ComparedStore } from "../../functions/oversell/compare/compare.ts";
import { pageAt } from "../support/docs.ts";

test("a comparison of stores is drawn in 80 columns, with what became of a held lock", () => {
  const measured = { median: 2.4, slowest: 61_000, inOrder: 40, waiters: 40 };
  const url = `mysql://${"x".repeat(100)}`;
  const failed = `etcd ended at once:\n${"its log\n".repeat(25)}`;
  const stores: readonly ComparedStore[] = [
    { store: "redis", ...measured, breaks: { crash: "two", clock: "lost", memory: "away" } },
    { store: "zookeeper-cluster", ...measured, breaks: { crash: "held", failover: "held" } },
    { store: url, ...measured, inOrder: 2, breaks: {} },
    { store: "etcd", ...measured, breaks: { crash: "held" }, failed },
    { store: "mysql", breaks: {}, failed: "mysql is not installed: ".repeat(10) },
  ];
  const lines = [COMPARISON_HEAD, ...stores.map(drawCompared), COMPARISON_LEGEND]
    .join("\n")
    .split("\n");
  expect(lines.slice(0, 8)).toEqual([
    "store              hand-over   slowest  in order  crash  failover  clock  memory",
    "redis                   2 ms   1 m 1 s     40/40    TWO         –   lost    away",
    "zookeeper-cluster       2 ms   1 m 1 s     40/40   held      held      –       –",
    "mysql://xxxxxxxx…       2 ms   1 m 1 s      2/40      –         –      –       –",
    "etcd                    2 ms   1 m 1 s     40/40   held         –      –       –",
    "  failed: etcd ended at once:",
    "mysql                      –         –         –      –         –      –       –",
    expect.stringMatching(/^ {2}failed: mysql is not installed: .*…$/),
  ]);
  expect(Math.max(...lines.map((line) => [...line].length))).toBeLessThanOrEqual(80);
});

const RESULTS = { held: "held", lost: "lost", two: "two holders", away: "no answer" };

/** Draws the table of the docs. */
function tableOf(stores: readonly ComparedStore[]): string {
  return stores
    .map(({ store, version, median = 0, slowest = 0, inOrder, waiters, breaks }) => {
      const events = ["crash", "failover", "clock", "memory"] as const;
      const cells = [
        `\`${store}\` ${version}`,
        `${Math.round(median)} ms (${Math.round(slowest)})`,
        `${inOrder} of ${waiters}`,
        ...events.map((event) => {
          const result = breaks[event];
          return result ? RESULTS[result] : "–";
        }),
      ];
      return `| ${cells.join(" | ")} |`;
    })
    .join("\n");
}

test("the docs show the kept comparison, its command and its versions", () => {
  const kept = fileURLToPath(new URL("../../docs/comparison.json", import.meta.url));
  const { command, stores, ...versions } = JSON.parse(readFileSync(kept, "utf8"));
  const page = pageAt("docs/incident.md").replaceAll(/ \\\n +/g, " ");
  expect(page).toContain(tableOf(stores));
  expect(page).toContain(`\n${command.replace(" --json", "")}\n`);
  expect(page).toContain(`Node.js ${versions["Node.js"]}`);
});
