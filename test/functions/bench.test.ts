import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { heldTo, measure } from "../bench/measure.ts";
import { runNode } from "../support/script.ts";
import { pause } from "../support/until.ts";

const main = fileURLToPath(new URL("../bench/main.ts", import.meta.url));

test("a suite prints one JSON document of results and ratios", async () => {
  using run = runNode([main, "--suite", "mysql", "--rounds", "2", "--block", "40", "--json"]);
  const { suite, server, results, ratios } = JSON.parse(await run.line());
  expect(suite).toBe("mysql");
  expect(server).toMatch(/\d+\.\d+/);
  expect(results.length).toBeGreaterThanOrEqual(8);
  for (const result of results) {
    expect(Object.keys(result)).toEqual(["name", "perSec", "p50Millis", "p99Millis"]);
    expect(result.perSec).toBeGreaterThan(0);
    expect(result.p99Millis).toBeGreaterThanOrEqual(result.p50Millis);
  }
  for (const ratio of ratios) {
    expect(Object.keys(ratio)).toEqual(["name", "value", "low", "high", "aim", "met"]);
    expect(ratio.low).toBeLessThanOrEqual(ratio.value);
    expect(ratio.high).toBeGreaterThanOrEqual(ratio.value);
  }
  expect(await run.ended).toBe(0);
}, 60_000);

test("the suite of functions says of each what it loads, and how long it takes to its first answer", async () => {
  using run = runNode([main, "--suite", "functions", "--rounds", "1", "--block", "1", "--json"]);
  const { counts, results, ratios } = JSON.parse(await run.line());
  const names = results.map(({ name }: { readonly name: string }) => name);
  expect(names).toEqual(expect.arrayContaining(["empty handler", "http, sqlite", "sweep, mysql"]));
  for (const { name, p50Millis, parts } of results) {
    expect(counts[`${name}: bytes at import`]).toBeGreaterThan(100);
    expect(counts[`${name}: bytes at import, by gzip`]).toBeGreaterThan(100);
    // Of a single start, the parts are the whole.
    expect(parts.import + (parts.answer ?? 0)).toBeCloseTo(p50Millis, 2);
  }
  expect(counts["sweep, mysql: bytes at first answer"]).toBeGreaterThan(500_000);
  expect(counts["sweep, sqlite: bytes at first answer"]).toBeLessThan(100_000);
  const [bytes] = ratios;
  expect(bytes).toMatchObject({ name: "withLock on etcd's gateway: bytes at import", met: true });
  expect(await run.ended).toBe(0);
}, 240_000);

test("what was counted is held to its limit", () => {
  const counts = { small: 5, large: 6 };
  expect(heldTo({ small: 5, large: 5 }, counts)).toEqual([
    { name: "small", value: 5, low: 5, high: 5, aim: 5, met: true },
    { name: "large", value: 6, low: 6, high: 6, aim: 5, met: false },
  ]);
  expect(() => heldTo({ smal: 5 }, counts)).toThrow('there is no count "smal"');
});

test("a ratio is what it says, and aims are met from the right side", async () => {
  const { ratios } = await measure({
    contenders: [
      { name: "fast", run: () => pause(2) },
      { name: "slow", run: () => pause(20) },
      { name: "slow, ten at a time", batch: 10, run: () => pause(20) },
    ],
    comparisons: [
      { name: "time", of: "slow", over: "fast", by: "time", aim: 1.5 },
      { name: "rate", of: "fast", over: "slow", by: "rate", aim: 1.5 },
      { name: "batch", of: "slow, ten at a time", over: "slow", by: "rate", aim: 5 },
      { name: "added", of: "slow", over: "fast", by: "added", aim: 10 },
    ],
    rounds: 3,
    blockMillis: 60,
  });
  const [time, rate, batch, added] = ratios;
  expect(time?.value).toBeGreaterThan(2);
  expect(time?.met).toBe(false);
  expect(rate?.value).toBeGreaterThan(2);
  expect(rate?.met).toBe(true);
  expect(batch?.value).toBeGreaterThan(5);
  expect(batch?.met).toBe(true);
  expect(added?.value).toBeGreaterThan(10);
  expect(added?.met).toBe(false);
});
