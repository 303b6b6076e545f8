import { expect, test } from "vitest";
import { peersSection, peersTables } from "./page.ts";
import { type Outcome, type Trial, untriedOn } from "./try-lock.ts";

const outcome = (fault: Outcome["fault"], lost: number): Outcome => ({
  ...{ fault, rounds: 3, turns: 10, lost, refused: 0, gaveUp: 0 },
  ...{ crashed: 0, stuck: 0, longestPause: 100 },
});
const trial = (lock: string, rest: Pick<Trial, "outcomes" | "untried">): Trial => ({
  ...{ lock, package: "this package", usage: "withLock", server: "1.0" },
  ...rest,
});
const run = (...trials: readonly Trial[]) => ({
  ...{ date: "2026-01-01", commit: "abc", seed: 1, ttl: 2_000, trials, services: [] },
});

const WIRED = trial("wired", { outcomes: [outcome("none", 0), outcome("cut off", 2)] });
const UNWIRED = trial("unwired", {
  outcomes: [outcome("none", 0)],
  untried: { "cut off": "there are no wires" },
});

test("a letter in a cell says why a fault was not tried on a lock", () => {
  expect(peersTables(run(WIRED, UNWIRED))).toContain(`| lock | none | cut off |
| --- | --- | --- |
| wired | 0 | **2 lost** |
| unwired | 0 | a |

- a: there are no wires
`);
});

test("the page tells the faults that its run has tried alone", () => {
  const page = peersSection({ runs: [run(WIRED, UNWIRED)] });
  expect(page).toContain("- *cut off*:");
  expect(page).not.toContain("- *leader killed*:");
});

test("the reason why a fault is not tried is that of the store", () => {
  const faults = {
    ...{ wires: "no wires", "server's clock stepped": async () => true },
    ...{ "leader killed": "no leader", "leader replaced": "no leader" },
    ...{ "leader cut off": "no leader", compaction: "none", "store full": "none" },
  };
  const names = [
    ...(["none", "cut off", "server restarted"] as const),
    ...(["server's clock stepped", "leader killed"] as const),
  ];
  expect(untriedOn({ faults }, names)).toEqual({
    "cut off": "no wires",
    "leader killed": "no leader",
  });
});
