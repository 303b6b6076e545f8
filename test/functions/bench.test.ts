import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { measure } from "../bench/measure.ts";
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
    ],
    rounds: 3,
    blockMillis: 60,
  });
  const [time, rate, batch] = ratios;
  expect(time?.value).toBeGreaterThan(2);
  expect(time?.met).toBe(false);
  expect(rate?.value).toBeGreaterThan(2);
  expect(rate?.met).toBe(true);
  expect(batch?.value).toBeGreaterThan(5);
  expect(batch?.met).toBe(true);
});
