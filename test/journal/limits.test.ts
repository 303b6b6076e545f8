import { expect, test } from "vitest";
import { Admission, type QueueLimits } from "../../core/journal/limits.ts";

/** The runs of keys a, a, b and none that a queue admits in which one run of key a is executed. */
function admitted(limits: QueueLimits): readonly string[] {
  const queue = { ...limits, running: new Map([["a", 1]]), aheadBy: 0, keysAheadBy: new Map() };
  const keys = ["a", "a", "b", undefined];
  const runs = keys.map((key, i) => ({ queue: "q", key, runId: `${key}${i}` }));
  return new Admission(new Map([["q", queue]])).take(runs, 9).map(({ runId }) => runId);
}

test("a queue admits no more runs than its limits allow, with those that are executed", () => {
  expect(admitted({})).toEqual(["a0", "a1", "b2", "undefined3"]);
  expect(admitted({ perKey: 2 })).toEqual(["a0", "b2", "undefined3"]);
  expect(admitted({ perKey: 1 })).toEqual(["b2", "undefined3"]);
  expect(admitted({ concurrency: 3 })).toEqual(["a0", "a1"]);
  expect(admitted({ rate: { runs: 3, per: "1s" } })).toEqual(["a0", "a1", "b2"]);
  expect(admitted({ ratePerKey: { runs: 1, per: "1s" } })).toEqual(["a0", "b2", "undefined3"]);
});
