import { describe, expect, onTestFinished, test } from "vitest";
import { campaign } from "./campaign.ts";
import { type Event, Oracle, sendReport } from "./oracle.ts";
import { STORES } from "./stores.ts";

test("a short campaign on SQLite breaks no guarantee", async () => {
  await using store = await STORES.sqlite();
  const report = await campaign({ store, seconds: 5, seed: 7 });
  expect(report.violations).toEqual([]);
  expect(report.acquisitions).toBeGreaterThan(0);
  expect(report.writesApplied).toBeGreaterThan(0);
  expect(Object.keys(report.faults)).not.toEqual([]);
});

const millis = (count: number) => String(count * 1e6);

const claim = (owner: string, fence: string, requestedAt: number, acquiredAt: number): Event => ({
  ...{ type: "claim", name: "cup", fence, owner },
  ...{ requestedAt: millis(requestedAt), acquiredAt: millis(acquiredAt) },
});
const of = (owner: string, fence: string) => ({ name: "cup", fence, owner });

describe("the oracle", () => {
  async function judged(events: readonly Event[]): Promise<readonly string[]> {
    const oracle = await Oracle.open();
    onTestFinished(() => oracle.close());
    for (const event of events) await sendReport(oracle.url, event);
    return oracle.judge();
  }

  test("finds no violation in a correct history", async () => {
    const history: readonly Event[] = [
      claim("a", "1", 0, 10),
      { type: "write", ...of("a", "1"), value: 1 },
      { type: "held", ...of("a", "1"), at: millis(19) },
      claim("b", "2", 5, 20),
      // Late: refused, and no violation.
      { type: "write", ...of("a", "1"), value: 2 },
      { type: "release", ...of("a", "1"), startedAt: millis(25), answer: "was-lost" },
      { type: "write", ...of("b", "2"), value: 2 },
      { type: "release", ...of("b", "2"), startedAt: millis(30), answer: "released" },
    ];
    expect(await judged(history)).toEqual([]);
  });

  test.each<[violation: string, message: RegExp, history: readonly Event[]]>([
    [
      "one fence for two holders",
      /^b and a have one fence/,
      [claim("a", "1", 0, 1), claim("b", "1", 0, 2)],
    ],
    [
      "a write over a value that the holder did not read",
      /^a wrote 5 over 0: an update is lost/,
      [claim("a", "1", 0, 1), { type: "write", ...of("a", "1"), value: 5 }],
    ],
    [
      "two holders at once",
      /^a considered itself the holder of cup 7 ms after b acquired it/,
      [
        claim("a", "1", 0, 1),
        claim("b", "2", 0, 3),
        { type: "held", ...of("a", "1"), at: millis(10) },
      ],
    ],
    [
      "a fence that falls",
      /^b requested cup after a had acquired it, and has a lower fence/,
      [claim("a", "2", 0, 1), claim("b", "1", 2, 3)],
    ],
    [
      "a release of another holder's lock",
      /^a was answered "released" for cup, which b had acquired before/,
      [
        claim("a", "1", 0, 1),
        claim("b", "2", 0, 3),
        { type: "release", ...of("a", "1"), startedAt: millis(5), answer: "released" },
      ],
    ],
  ])("catches %s", async (_, message, history) => {
    expect(await judged(history)).toEqual([expect.stringMatching(message)]);
  });
});
