import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test, vi } from "vitest";
import { exponentOf } from "../bench/growth/growth.ts";
import { checkLimits, measure } from "../bench/measure.ts";
import { partsOf } from "../bench/profile.ts";
import { EVERY_VERSION, WHOLE_MATRIX } from "../support/matrix.ts";
import { needServers } from "../support/missing.ts";
import { runNode } from "../support/script.ts";
import { pause } from "../support/until.ts";

const main = fileURLToPath(new URL("../bench/main.ts", import.meta.url));

test.runIf(WHOLE_MATRIX)("a suite prints one JSON document of results and ratios", async () => {
  await needServers("mariadb");
  using run = runNode([main, "--suite", "mysql", "--rounds", "2", "--block", "40", "--json"]);
  const { suite, server, results, ratios } = JSON.parse(await run.line());
  expect(suite).toBe("mysql");
  expect(server).toMatch(/\d+\.\d+/);
  expect(results.length).toBeGreaterThanOrEqual(8);
  for (const result of results) {
    expect(Object.keys(result)).toEqual(["name", "perSec", "p50Millis", "p99Millis", "cpuMillis"]);
    expect(result.perSec).toBeGreaterThan(0);
    expect(result.p99Millis).toBeGreaterThanOrEqual(result.p50Millis);
  }
  for (const ratio of ratios) {
    expect(Object.keys(ratio)).toEqual(["name", "by", "value", "low", "high", "aim", "met"]);
    expect(ratio.low).toBeLessThanOrEqual(ratio.value);
    expect(ratio.high).toBeGreaterThanOrEqual(ratio.value);
  }
  expect(await run.ended).toBe(0);
});

// The default run tests the bounds of each bundle.
test.runIf(EVERY_VERSION)(
  "the suite of functions reports the loaded bytes and the time to the first answer of each function",
  async () => {
    await needServers("mariadb", "etcd", "redis");
    using run = runNode([
      main,
      "--suite",
      "functions",
      "--rounds",
      "1",
      "--block",
      "1",
      "--alone",
      "--json",
    ]);
    const { counts, results, ratios } = JSON.parse(await run.line());
    const names = results.map(({ name }: { readonly name: string }) => name);
    expect(names).toEqual(
      expect.arrayContaining(["empty handler", "http, sqlite", "sweep, mysql"]),
    );
    for (const { name, p50Millis, parts } of results) {
      expect(counts[`${name}: bytes at import`]).toBeGreaterThan(0);
      expect(counts[`${name}: bytes at import, by gzip`]).toBeGreaterThan(0);
      // Of a single start, the parts are the whole.
      expect(parts.import + (parts.answer ?? 0)).toBeCloseTo(p50Millis, 2);
    }
    expect(counts["sweep, mysql: bytes at first answer"]).toBeGreaterThan(500_000);
    expect(counts["sweep, sqlite: bytes at first answer"]).toBeLessThan(100_000);
    const [bytes] = ratios;
    expect(bytes).toMatchObject({
      name: "lockedHandler on etcd's gateway: bytes at import",
      met: true,
    });
    expect(await run.ended).toBe(0);
  },
  600_000,
);

test("a profile of each contender is written, and its parts are printed", async () => {
  await needServers("mariadb");
  const folder = await mkdtemp(join(tmpdir(), "lockstep-profiles-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const options = ["--suite", "mysql", "--rounds", "1", "--block", "200", "--json"];
  using run = runNode([main, ...options, "--profile", folder]);
  const { profiles } = JSON.parse(await run.line());
  expect(await readdir(folder)).toHaveLength(profiles.length);
  const text = await readFile(join(folder, "acquire-release.cpuprofile"), "utf8");
  expect(JSON.parse(text).samples.length).toBeGreaterThan(0);
  const pair = profiles.find(({ name }: { readonly name: string }) => name === "acquire + release");
  // Which parts were seen depends on how many samples a busy machine has taken.
  expect(Object.values(pair.parts)).not.toEqual([]);
  expect(await run.ended).toBe(0);
});

test("the time of a profile goes to folders of the project, packages, Node, V8, and waiting", () => {
  const inProject = (path: string) => new URL(`../../${path}`, import.meta.url).href;
  const frames: readonly (readonly [url: string, functionName: string])[] = [
    ["", "(idle)"],
    ["", "(garbage collector)"],
    ["", "writev"],
    ["node:net", "write"],
    [inProject("core/lock/polling.ts"), "claim"],
    [inProject("core/stores/sql/locks.ts"), "take"],
    [inProject("core/stores/sql/locks.ts"), "release"],
    [inProject("node_modules/mysql2/lib/connection.js"), "execute"],
    [inProject("node_modules/@types/x/index.js"), "typed"],
  ];
  const nodes = frames.map(([url, functionName], i) => ({
    id: i + 1,
    callFrame: { url, functionName, scriptId: "1", lineNumber: 0, columnNumber: 0 },
  }));
  const samples = nodes.map(({ id }) => id);
  const timeDeltas = nodes.map(({ id }) => id * 10);
  const profile = { nodes, samples, timeDeltas, startTime: 0, endTime: 1 };
  expect(partsOf(profile, 10)).toEqual({
    waiting: 1,
    "garbage collection": 2,
    "V8 and native code": 3,
    node: 4,
    "core/lock": 5,
    "core/stores/sql": 13,
    mysql2: 8,
    "@types/x": 9,
  });
});

test("the growth of a store's costs is printed with exponents", async () => {
  const options = ["--suite", "growth", "--stores", "memory", "--seconds", "20", "--json"];
  using run = runNode([main, ...options]);
  const { series } = JSON.parse(await run.line());
  const names = series.map(({ name }: { readonly name: string }) => name);
  expect(names).toEqual(["waiters", "held names", "clients", "runs"]);
  for (const { points, exponent } of series) {
    expect(exponent).toBe(exponentOf(points));
    for (const { size, millis } of points) {
      expect(size).toBeGreaterThan(0);
      expect(millis).toBeGreaterThan(0);
    }
  }
  expect(await run.ended).toBe(0);
});

test("an exponent is the slope of the logarithms, and needs three sizes", () => {
  const points = [1, 10, 100].map((size) => ({ size, millis: 3 * size ** 2 }));
  expect(exponentOf(points)).toBe(2);
  expect(exponentOf(points.slice(1))).toBeUndefined();
  // Not the number -0, which JSON does not have.
  const flat = [1, 10, 100].map((size) => ({ size, millis: 1 - size / 100_000 }));
  expect(exponentOf(flat)).toBe(0);
});

test("a count is compared with its limit", () => {
  const counts = { small: 5, large: 6 };
  expect(checkLimits({ small: 5, large: 5 }, counts)).toEqual([
    { name: "small", by: "count", value: 5, low: 5, high: 5, aim: 5, met: true },
    { name: "large", by: "count", value: 6, low: 6, high: 6, aim: 5, met: false },
  ]);
  expect(() => checkLimits({ smal: 5 }, counts)).toThrow('unknown count "smal"');
});

test("a ratio is computed as named, and its aim is a minimum or a maximum accordingly", async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const measured = measure({
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
  await vi.runAllTimersAsync();
  const { ratios } = await measured;
  const [time, rate, batch, added] = ratios;
  expect(time?.value).toBe(10);
  expect(time?.met).toBe(false);
  expect(rate?.value).toBe(10);
  expect(rate?.met).toBe(true);
  expect(batch?.value).toBe(10);
  expect(batch?.met).toBe(true);
  expect(added?.value).toBe(18);
  expect(added?.met).toBe(false);
});
