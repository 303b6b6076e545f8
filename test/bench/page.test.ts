import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { pageAt } from "../support/docs.ts";
import { besideDbos, KINDS } from "./beside-dbos.ts";
import { type Benchmarks, barsOf, benchmarksPage } from "./page.ts";
import type { SuiteReport } from "./suite.ts";
import { withReport } from "./written.ts";

const benchmarks: Benchmarks = JSON.parse(
  readFileSync(new URL("../../docs/benchmarks.json", import.meta.url), "utf8"),
);

test("the page of the benchmarks is made from their results", () => {
  expect(pageAt("docs/benchmarks.md")).toBe(benchmarksPage(benchmarks));
});

test("steps are beside those of DBOS under locks in PostgreSQL first, with their ratio and its interval", () => {
  const report = benchmarks.suites.find(({ suite }) => suite === "postgres") ?? expect.fail();
  const [{ comparison }] = KINDS;
  const measured = { value: 0.5, low: 0.4, high: 0.6 };
  const ratios = report.ratios.map((ratio) =>
    ratio.name === `${comparison}, 1 at a time` ? { ...ratio, ...measured } : ratio,
  );
  const rows = besideDbos({ ...report, ratios }).split("\n");
  expect(rows.find((line) => line.startsWith("| in a tr"))).toMatch(
    /under locks in PostgreSQL \| 1 \| .* \| 0\.50 \| 0\.40 to 0\.60 \|$/,
  );
});

test("a suite that was measured alone replaces its last results, and the page tells when", () => {
  const [first] = benchmarks.suites;
  const measured = { date: "2030-01-02", commit: "1a2b3c4", rounds: 7, block: 90 };
  const again: SuiteReport = { ...(first ?? expect.fail()), server: "Newer 2", measured };
  const suites = withReport(benchmarks.suites, again);
  expect(suites).toEqual([again, ...benchmarks.suites.slice(1)]);
  expect(withReport([], again)).toEqual([again]);
  expect(benchmarksPage({ ...benchmarks, suites })).toContain(
    "On Newer 2: measured alone on 2030-01-02, on the code of commit `1a2b3c4`, in 7 rounds of 90 ms.",
  );
});

test("the page tells why a suite was not measured, and names no server", () => {
  const notes = ["not measured: mysql is not installed"];
  const missing = { suite: "mysql", server: "", notes, counts: {}, results: [], ratios: [] };
  const page = benchmarksPage({ ...benchmarks, suites: [missing] });
  expect(page).toContain("## MySQL\n\nThe same on MySQL.\n\n- not measured: mysql is not");
});

test("a ratio lies right of its aim when it is met, whether more or less is better", () => {
  const ratio = { value: 2, low: 1, high: 4, aim: 2 };
  const ratios = [
    { ...ratio, name: "quick enough", by: "rate", met: true },
    { ...ratio, name: "slow", by: "time", value: 4, met: false },
    { ...ratio, name: "less than nothing", by: "added", value: -1, met: true },
  ] as const;
  const suite = { suite: "s", server: "", notes: [], counts: {}, results: [], ratios };
  expect(barsOf({ suites: [suite] })).toEqual([
    { suite: "s", name: "quick enough", value: 1, low: 0.5, high: 2, met: true },
    { suite: "s", name: "slow", value: 0.5, low: 0.5, high: 2, met: false },
    { suite: "s", name: "less than nothing", value: 10, low: 0.5, high: 2, met: true },
  ]);
});
