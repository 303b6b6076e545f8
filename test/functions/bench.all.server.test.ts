import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { exponentOf } from "../bench/growth/growth.ts";
import { EVERY_VERSION } from "../support/matrix.ts";
import { needServers } from "../support/missing.ts";
import { runNode } from "../support/script.ts";

const main = fileURLToPath(new URL("../bench/main.ts", import.meta.url));

test("a suite prints one JSON document of results and ratios", async () => {
  await needServers("mariadb");
  using run = runNode([main, "--suite", "mariadb", "--rounds", "2", "--block", "40", "--json"]);
  const { suite, server, results, ratios } = JSON.parse(await run.line());
  expect(suite).toBe("mariadb");
  expect(server).toMatch(/\d+\.\d+/);
  expect(results.length).toBeGreaterThanOrEqual(8);
  for (const result of results) {
    const { cpuMillis, ...others } = result;
    expect(Object.keys(others)).toEqual(["name", "perSec", "p50Millis", "p99Millis"]);
    // Other processes compute elsewhere.
    expect(cpuMillis === undefined).toBe(/\d process(es)?$/.test(result.name));
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
  const options = ["--suite", "mariadb", "--rounds", "1", "--block", "200", "--json"];
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

test("the growth of a store's costs is printed with exponents", async () => {
  const options = ["--suite", "growth", "--stores", "memory", "--seconds", "20", "--json"];
  using run = runNode([main, ...options]);
  const { series } = JSON.parse(await run.line());
  const names = series.map(({ name }: { readonly name: string }) => name);
  expect(names).toEqual(["waiters", "clients", "runs", "held names"]);
  for (const { points, exponent } of series) {
    expect(exponent).toBe(exponentOf(points));
    for (const { size, millis } of points) {
      expect(size).toBeGreaterThan(0);
      expect(millis).toBeGreaterThan(0);
    }
  }
  expect(await run.ended).toBe(0);
});
