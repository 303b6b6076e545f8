import { expect, onTestFinished, test, vi } from "vitest";
import { pause } from "../support/until.ts";
import { exponentOf } from "./growth/growth.ts";
import { checkLimits, measure } from "./measure.ts";
import { partsOf } from "./profile.ts";

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
  expect(partsOf(profile, { operations: 10 })).toEqual({
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

test("the CPU time of an operation is compared with its aim, and less is better", async () => {
  const report = async () => ({ rate: 1, millis: [9], shares: [], cpuMillis: 0.25 });
  const { ratios } = await measure({
    contenders: [{ name: "step", report }],
    comparisons: [
      { name: "modest", of: "step", by: "cpu", aim: 0.3 },
      { name: "ambitious", of: "step", by: "cpu", aim: 0.2 },
    ],
    rounds: 1,
    blockMillis: 1,
  });
  expect(ratios.map(({ value, met }) => [value, met])).toEqual([
    [0.25, true],
    [0.25, false],
  ]);
});
