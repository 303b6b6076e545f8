import { describe, expect, test } from "vitest";
import type { LedgerEntry } from "../../core/inventory/inventory.ts";
import { measuredCode } from "../support/commit.ts";
import { campaign, verdictOf } from "./campaign.ts";
import { faultMatrix } from "./fault-matrix.ts";
import type { HistoryEvent } from "./history.ts";
import { judge, judgeStock, withoutExcused } from "./judge.ts";
import { FAULTS, type FaultCounts } from "./nemesis.ts";
import { Oracle } from "./oracle.ts";
import { STORES } from "./stores.ts";
import { renderHistory } from "./trace.ts";

test("a short campaign on SQLite breaks no guarantee", async () => {
  await using store = await STORES.sqlite();
  const code = measuredCode();
  const report = await campaign({ store, seconds: 5, seed: 7 });
  expect(report.violations).toEqual([]);
  for (const operation of ["acquire", "claim", "write", "sale", "run", "release"]) {
    expect(report.succeeded[operation], operation).toBeGreaterThan(0);
  }
  expect(report).toMatchObject(code);
  expect(report.operations).toBeGreaterThan(100);
  // 35 resources, and some runs.
  expect(report.replay).toMatchObject({ histories: expect.toSatisfy((count) => count > 35) });
  expect(report.replay).toMatchObject({ events: expect.toSatisfy((count) => count > 200) });
  expect(report.replay).toHaveProperty("models.validity");
  expect(report.replay).not.toHaveProperty("models.withdrawal");
});

type Call = Omit<HistoryEvent, "type" | "time">;

/** A call from `from` to `to`, in milliseconds. */
function call(from: number, to: number, about: Call, end: Partial<HistoryEvent> = {}) {
  const invoke: HistoryEvent = { time: from * 1_000, type: "invoke", ...about };
  return [invoke, { time: to * 1_000, type: "ok", ...about, ...end }] satisfies HistoryEvent[];
}

const name = "cup";
const acquire = (client: string, token: string, from: number, to: number) =>
  call(from, to, { client, operation: "acquire", name }, { token });
const use = (operation: string, client: string, token: string, at: number, end = {}) =>
  call(at, at + 1, { client, operation, name, token }, end);
const held = (client: string, token: string, at: number): HistoryEvent => ({
  ...{ time: at * 1_000, type: "ok", operation: "hold", client, name, token },
});
const inspected = (token: string, at: number): HistoryEvent => ({
  ...{ time: at * 1_000, type: "ok", operation: "inspect", client: "observer", name, token },
});
const REFUSED = { type: "fail", code: "FENCED_OUT" } as const;

describe("the judge of a history", () => {
  test("finds no violation in a correct one, and counts its late holder", () => {
    const { violations, ...counts } = judge(
      [
        acquire("a", "1", 0, 10),
        use("claim", "a", "1", 11),
        held("a", "1", 13),
        inspected("1", 14),
        acquire("b", "2", 5, 20),
        use("claim", "b", "2", 21),
        use("write", "a", "1", 23, REFUSED),
        use("release", "a", "1", 25, { type: "fail", code: "was-lost" }),
        use("write", "b", "2", 26),
        use("release", "b", "2", 30),
      ].flat(),
    );
    expect(violations).toEqual([]);
    expect(counts).toEqual({ overlaps: 1, lateRefused: 1, lateAccepted: 0 });
  });

  const two = [acquire("a", "1", 0, 1), acquire("b", "2", 0, 3)].flat();

  test.each<
    [violation: string, message: RegExp, history: readonly (HistoryEvent | HistoryEvent[])[]]
  >([
    [
      "one token for two holders",
      /^token order: a and b have one token/,
      [acquire("a", "1", 0, 1), acquire("b", "1", 0, 2)],
    ],
    [
      "tokens that fall",
      /^token order: b requested cup after a had acquired it, and has a lower token/,
      [acquire("a", "2", 0, 1), acquire("b", "1", 2, 3)],
    ],
    [
      "two holders at once",
      /^validity: a considered itself the holder of cup 7 ms after b had acquired it/,
      [two, held("a", "1", 10)],
    ],
    [
      "a holder after the store had a later one, which has not told",
      /^validity at the store: a considered itself the holder of cup 2 ms after the store had a later/,
      [acquire("a", "1", 0, 1), inspected("2", 3), held("a", "1", 5)],
    ],
    [
      "a release of another holder's lock",
      /^release by the owner: a was answered "released" for cup, which b had acquired before/,
      [two, use("release", "a", "1", 5)],
    ],
    [
      "a late write",
      /^late write: a used the stock of cup under 1, after 2 was confirmed/,
      [two, use("sale", "b", "2", 5), use("sale", "a", "1", 7)],
    ],
  ])("catches %s", (_, message, history) => {
    expect(judge(history.flat()).violations).toEqual([expect.stringMatching(message)]);
  });

  test("replays no look at a lock that a step of the store's clock may have ended", () => {
    const step = call(4, 9, { client: "nemesis", operation: "server's clock stepped" });
    const later = [acquire("c", "3", 20, 21), held("c", "3", 22)].flat();
    const before = { ...held("a", "1", 3), until: 5_000 };
    expect(withoutExcused([...two, before, ...step, held("a", "1", 10), ...later])).toEqual([
      ...two,
      ...step,
      ...later,
    ]);
  });

  test("takes no claim for a holder that was seen before the request, and that a failover has lost", () => {
    const lost = [inspected("9", 1), acquire("a", "1", 2, 3), held("a", "1", 5)];
    expect(judge(lost.flat()).violations).toEqual([]);
  });

  test("lets the validity of locks end early while the store's clock is stepped", () => {
    const step = call(4, 9, { client: "nemesis", operation: "server's clock stepped" });
    const { violations } = judge([...two, ...step, held("a", "1", 10)]);
    expect(violations).toEqual([]);
  });
});

const entry = (seq: number, operationId: string, remaining: number, fence = "1"): LedgerEntry => ({
  ...{ seq, kind: "decrement", quantity: 1, outcome: "applied", remaining, operationId, fence },
  ...{ reservation: undefined, at: new Date(0) },
});

describe("the judge of stock", () => {
  const sale = (id: string, units: number, end: Partial<HistoryEvent>) =>
    call(0, 1, { client: "a", operation: "sale", name, id, units }, end);
  const judged = (
    entries: readonly LedgerEntry[],
    calls: readonly HistoryEvent[],
    onHand = entries.at(-1)?.remaining ?? 9,
  ) => judgeStock({ sku: "cup", supplied: 9, onHand, entries }, calls);
  const two = [entry(1, "a-0/0", 8), entry(2, "a-0/1", 7)];
  const run = call(0, 1, { client: "a", operation: "run", name, id: "a-run-0" });

  test("accepts sales that are known, unknown or refused, and a run that has sold once", () => {
    const events = [
      ...sale("a-0", 2, { remaining: 7 }),
      ...sale("a-1", 1, { type: "unknown" }),
      ...sale("a-2", 1, REFUSED),
      ...run,
    ];
    expect(judged([...two, entry(3, "a-run-0/x", 6)], events)).toEqual([]);
  });

  test.each<[string, RegExp, readonly LedgerEntry[], readonly HistoryEvent[], number?]>([
    ["a lost sale", /^stock: the confirmed sale is lost/, [], sale("a-0", 1, { remaining: 8 })],
    [
      "a half of a sale",
      /^stock: 1 of 2 units were sold/,
      two.slice(0, 1),
      sale("a-0", 2, { type: "unknown" }),
    ],
    ["a sale that failed", /^known errors: it failed/, two, sale("a-0", 2, REFUSED)],
    [
      "another answer",
      /^once per operation id: it was answered 6 left, not 7/,
      two,
      sale("a-0", 2, { remaining: 6 }),
    ],
    [
      "a sale that was applied twice",
      /^once per operation id: it was applied twice/,
      [entry(1, "a-0/0", 8), entry(2, "a-0/0", 7)],
      sale("a-0", 1, { type: "unknown" }),
    ],
    ["a sale of nobody", /^stock: nobody asked for a-0/, two, []],
    ["a lost unit", /^stock: cup has 5 units, and 7/, two, sale("a-0", 2, { remaining: 7 }), 5],
    [
      "fences that fall",
      /^late write: a-0\/1 under 1 after 2/,
      [entry(1, "a-0/0", 8, "2"), entry(2, "a-0/1", 7)],
      sale("a-0", 2, { remaining: 7 }),
    ],
    [
      "a run that has sold twice",
      /^once per transaction: it sold twice/,
      [entry(1, "a-run-0/x", 8), entry(2, "a-run-0/y", 7)],
      run,
    ],
    ["a run that has sold nothing", /^once per transaction: it completed/, [], run],
  ])("catches %s", (_, message, entries, events, onHand) => {
    expect(judged(entries, events, onHand)).toEqual([expect.stringMatching(message)]);
  });
});

test("a failing history opens in the viewer of the incident: a span for each call, in the lane of its client", () => {
  const history = [
    ...call(4, 9, { client: "nemesis", operation: "contender frozen" }),
    ...acquire("a", "1", 1, 3),
    ...use("sale", "a", "1", 7),
    { time: 10_000, client: "b", operation: "acquire", type: "invoke", name } as const,
  ];
  const { traceEvents } = JSON.parse(renderHistory(history, ["late write: a used the stock"]));
  const names = traceEvents.filter(({ ph }: { ph: string }) => ph === "M");
  expect(names.map(({ args }: { args: { name: string } }) => args.name)).toEqual([
    ...["cup", "a", "b", "faults", "nemesis", "violations"],
  ]);
  expect(traceEvents).toContainEqual({
    ...{ name: "sale ok", cat: "sale", ph: "X", pid: 0, tid: 0, ts: 6_000, dur: 1_000 },
    args: { token: "1" },
  });
  expect(traceEvents).toContainEqual({
    ...{ name: "acquire invoke", cat: "acquire", ph: "X", pid: 0, tid: 1, ts: 9_000, dur: 0 },
    args: {},
  });
  expect(traceEvents).toContainEqual(
    expect.objectContaining({ name: "contender frozen ok", pid: 1, ts: 3_000, dur: 5_000 }),
  );
  expect(traceEvents).toContainEqual(
    expect.objectContaining({ name: "late write: a used the stock", ph: "i", pid: 2, ts: 9_000 }),
  );
});

test("the oracle refuses late holders, and catches a lost update", () => {
  const oracle = new Oracle();
  const at = (client: string, token: string) => ({ name, client, token });
  expect(oracle.answer(at("a", "1"))).toEqual({ value: 0 });
  expect(oracle.answer(at("b", "2"))).toEqual({ value: 0 });
  expect(oracle.answer({ ...at("a", "1"), value: 1 })).toEqual({});
  expect(oracle.violations).toEqual([]);
  expect(oracle.answer({ ...at("b", "2"), value: 5 })).toEqual({ value: 5 });
  expect(oracle.violations).toEqual(["lost update: b wrote 5 over 0 of cup"]);
});

describe("the verdict", () => {
  const faults = Object.fromEntries(
    FAULTS.map((fault) => [fault, { tried: 1, met: 1 }]),
  ) as FaultCounts;
  const replay = { histories: 3, events: 100 };
  const succeeded = { sale: 600, acquire: 100 };
  const tried = {
    ...{ violations: [], seconds: 10, operations: 1_000, succeeded, overlaps: 1 },
    ...{ faults, replay },
  };

  test("is passed when every fault has met something, and a late holder was seen", () => {
    expect(verdictOf(tried)).toEqual({ verdict: "passed", gaps: [] });
    const none = { ...faults, "wire cut": { not: "there are no wires" } };
    expect(verdictOf({ ...tried, faults: none }).verdict).toBe("passed");
  });

  test.each([
    [
      "few operations",
      { operations: 99, succeeded: { sale: 99 } },
      "only 99 of 99 operations succeeded",
    ],
    [
      "a store that was not there most of the time",
      { succeeded: { sale: 400, acquire: 99 } },
      "only 499 of 1000 operations succeeded",
    ],
    ["no late holder", { overlaps: 0 }, "no holder was late"],
    ["no replay", { replay: { not: "no event was replayed" } }, "no event was replayed"],
    [
      "a fault that met nothing",
      { faults: { ...faults, "wire cut": { tried: 3, met: 0 } } },
      "no wire cut",
    ],
  ])("is unknown after %s", (_, change, gap) => {
    expect(verdictOf({ ...tried, ...change })).toEqual({ verdict: "unknown", gaps: [gap] });
  });

  test("is failed after a violation, whatever was tried", () => {
    const violations = ["stock: a unit is missing" as const];
    expect(verdictOf({ ...tried, violations, overlaps: 0 }).verdict).toBe("failed");
  });

  test("has a matrix of faults without an empty cell", () => {
    const some = { ...faults, "wire cut": { not: "there are no wires" } } as const;
    const none = { ...faults, "wire cut": { tried: 3, met: 0 } };
    const lines = faultMatrix([
      { store: "sqlite", faults: some },
      { store: "redis", faults: none },
    ]).split("\n");
    expect(lines).toContain("| fault | sqlite | redis |");
    expect(lines).toContain("| wire cut | a | **0** |");
    expect(lines).toContain("- a: there are no wires");
  });
});
