import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import type { RunDetails } from "../../core/journal/queries.ts";
import type { StepRecord } from "../../core/journal/records.ts";
import { encode } from "../../core/steps/codec.ts";
import { drawRun } from "../../functions/cli/terminal/draw-run.ts";
import { traceOf } from "../../functions/cli/terminal/trace.ts";
import { timelineOf } from "../../functions/display/timeline.ts";

const startedAt = new Date("2026-01-02T03:04:05.000Z");
const at = (millis: number) => new Date(startedAt.getTime() + millis);

const record = (millis: number, more: Partial<StepRecord>): StepRecord => ({
  key: "step",
  kind: "step",
  outcome: "ok",
  attempt: 1,
  value: encode(undefined),
  epoch: 7n,
  at: at(millis),
  ...more,
});

const failure = encode({
  name: "TerminalError",
  code: "DECLINED",
  message: "no\u001b[31m\u009b\u007f money",
});

const failed: RunDetails = {
  ...{
    runId: "order-7",
    part: 1,
    workflow: "place-order",
    version: 2,
    status: "failed",
    epoch: 8n,
  },
  ...{ queue: "default", key: undefined, priority: 0 },
  ...{
    owner: "host:123",
    reason: undefined,
    waitsFor: undefined,
    inProgress: [],
    crashes: 1,
    cancelled: false,
    origin: undefined,
    forks: [],
  },
  ...{ startedAt, changedAt: at(4_000), dueAt: undefined, now: at(60_000) },
  input: encode({ orderId: "7" }),
  records: [
    record(100, {
      ...{ key: "reserve", kind: "tx", took: 40, waited: 30 },
      fence: "0000000001.00000000000000000042 0000000000.00000000000000000007",
    }),
    record(1_100, {
      ...{ key: "charge@1", outcome: "retry", took: 900 },
      value: encode({ error: { name: "Error", message: "the provider is away" }, retryIn: 100 }),
    }),
    record(1_200, { key: "pack@1 started", kind: "sleep", outcome: "started", value: encode(800) }),
    record(2_000, { key: "pack", kind: "sleep", value: encode(800) }),
    record(2_900, {
      key: "charge",
      outcome: "failed",
      attempt: 2,
      took: 600,
      value: failure,
      epoch: 8n,
    }),
    record(2_950, {
      key: "~failure",
      kind: "failure",
      outcome: "failed",
      value: failure,
      epoch: 8n,
    }),
    record(4_000, {
      ...{ key: "~undo/reserve", kind: "undo", took: 20, waited: 900, epoch: 8n },
      fence: "0000000001.00000000000000000043",
    }),
  ],
  next: undefined,
  error: undefined,
  signals: [{ number: 1, name: "paid", dedupeId: "1", payload: encode(1), at: at(2_500) }],
  ending: { status: "failed", value: failure, compensated: "yes", at: at(4_000) },
};

test("a run is drawn as a line for each record, with a time axis", () => {
  expect(drawRun(failed, 100).split("\n")).toEqual([
    "order-7  place-order v2  failed in 4.00 s",
    "started 2026-01-02T03:04:05.000Z, last executed by host:123",
    'input  {"orderId":"7"}',
    "",
    "      after step                  outcome         took    waited     fence ├ 0 ──────────── 4.00 s ┤",
    "     100 ms reserve               ok             40 ms     30 ms   1.42 +1 █",
    "     1.10 s charge                retry #1      900 ms                      ▓▓▓▓▓▓",
    "            Error: the provider is away",
    "     2.00 s pack                  slept         800 ms                            ┄┄┄┄┄┄",
    "     2.50 s ◆ paid                arrived                                                 ╵",
    "↻    2.90 s charge                failed #2     600 ms                                   ▓▓▓▓▓",
    "            DECLINED: no\\u001b[31m\\u009b\\u007f money",
    "     2.95 s ✗                     run failed                                                 ╵",
    "            DECLINED: no\\u001b[31m\\u009b\\u007f money",
    "     4.00 s ↶ reserve             undone         20 ms    900 ms      1.43                    ░░░░░▒",
    "↻ resumed: the run was parked, or its process was lost",
    "",
    "failed  DECLINED: no\\u001b[31m\\u009b\\u007f money",
    "all undos have run",
    "consecutive crashes: 1",
  ]);
});

test("the documentation shows a run as it is drawn", () => {
  const value = encode({ name: "TerminalError", code: "DECLINED", message: "no money" });
  const plain = failed.records
    .filter(({ kind }) => kind !== "sleep")
    .map((one) => (one.outcome === "failed" ? { ...one, value } : one))
    .map((one) => ({ ...one, fence: one.fence?.split(" ")[0] }));
  const ending = { status: "failed", value, compensated: "yes", at: at(4_000) } as const;
  const run = { ...failed, records: plain, signals: [], ending, crashes: 0 };
  const page = readFileSync(new URL("../../docs/workflows.md", import.meta.url), "utf8");
  expect(page).toContain(`\n\`\`\`text\n${drawRun(run, 100)}\n\`\`\`\n`);
});

test("a fork tells its origin, and the origin its forks", () => {
  const records = [
    record(1, { key: "reserve" }),
    record(2, { key: "~fork/1/order-6", kind: "fork", epoch: 8n }),
    record(3, { key: "charge", epoch: 9n }),
  ];
  const origin = { runId: "order-6", step: "~signal/paid" };
  const lines = drawRun({ ...failed, records, origin, forks: ["x", "y"] }, 100).split("\n");
  expect(lines.slice(3, 5)).toEqual(["forked from order-6 at paid", "forks  x, y"]);
  expect(lines[8]).toMatch(/^ +2 ms ⑂ order-6 +forked/);
  expect(lines[9]).toMatch(/^ +3 ms charge +ok/);
});

test("no line is wider than the given width, for any journal", () => {
  const long = "x".repeat(5_000);
  const error = encode({ name: "Error", message: long });
  const records = [
    record(1, { key: long, fence: `${"9".repeat(10)}.${"9".repeat(20)}` }),
    record(90_000_000, { key: `~undo/${long}`, kind: "undo", outcome: "failed", value: error }),
    record(90_000_000, {
      key: "nap@1 started",
      kind: "sleep",
      outcome: "started",
      value: encode(1e12),
    }),
  ];
  for (const width of [100, 140]) {
    const picture = drawRun(
      { ...failed, runId: long, owner: long, input: encode(long), records },
      width,
    );
    expect(Math.max(...picture.split("\n").map((line) => [...line].length))).toBeLessThanOrEqual(
      width,
    );
  }
});

test("a trace has a lane for each step, with its waits and its work in microseconds", () => {
  const { traceEvents } = traceOf(failed);
  const lanes = traceEvents.filter(({ name }) => name === "thread_name");
  expect(lanes.map(({ args }) => args.name)).toEqual([
    ...new Set(timelineOf(failed).map(({ step }) => step)),
  ]);
  const spans = traceEvents.filter(({ ph }) => ph === "X");
  expect(spans.length).toBeGreaterThanOrEqual(timelineOf(failed).length);
  const [first] = timelineOf(failed);
  expect(spans).toContainEqual(
    expect.objectContaining({
      name: `${first?.step}: ${first?.label}`,
      ts: Math.round((failed.startedAt.getTime() + (first?.from ?? 0)) * 1_000),
      dur: Math.round(((first?.at ?? 0) - (first?.from ?? 0)) * 1_000),
    }),
  );
});

test("the reason of a blocked run is shown whole, and the output of a completed one in one line", () => {
  const long = "x".repeat(300);
  const blocked = { ...failed, status: "blocked", ending: undefined } as const;
  const error = encode({ name: "TerminalError", code: "MISUSE", message: long });
  expect(drawRun({ ...blocked, error }, 100)).toContain(
    `blocked  MISUSE: ${long}; is tried again in `,
  );
  const ending = { status: "completed", value: encode(long), at: at(0) } as const;
  const completed = { ...failed, ...ending, ending: { ...ending, compensated: undefined } };
  expect(drawRun(completed, 100).split("\n").at(-1)).toHaveLength(100);
});

test("the last lines show the event that a run waits for, and the deadline", () => {
  const parked = {
    ...failed,
    status: "parked",
    ending: undefined,
    records: [],
    signals: [],
  } as const;
  const last = (run: RunDetails) => drawRun(run, 100).split("\n").slice(5);
  const asleep = { ...parked, crashes: 0, reason: "sleep", dueAt: at(60_000 + 192_000) } as const;
  expect(last(asleep)).toEqual([
    "",
    "parked  sleeps, wakes in 3 m 12 s, at 2026-01-02T03:08:17.000Z",
  ]);
  expect(last({ ...asleep, reason: "signal", dueAt: undefined }).at(-1)).toBe(
    "parked  waits for a signal",
  );
  expect(last({ ...asleep, dueAt: at(0) }).at(-1)).toBe("parked  sleeps, and is due");
  const busy = { ...asleep, reason: "lock-busy", waitsFor: "sku/teapot", dueAt: at(0) } as const;
  expect(
    drawRun(busy, 100, new Map([["sku/teapot", "web-1:47/a"]]))
      .split("\n")
      .at(-1),
  ).toBe('parked  waits for lock "sku/teapot", held by web-1:47/a, and is due');
  const running = { ...asleep, status: "running", reason: undefined } as const;
  expect(last({ ...running, dueAt: at(70_000), cancelled: true })).toEqual([
    "",
    "running  on host:123, lease ends in 10.0 s unless renewed",
    "cancelled: the run is stopped and undone",
  ]);
  expect(last({ ...running, dueAt: at(50_000) }).at(-1)).toContain(
    "lease expired: another process may take the run",
  );
});

test("steps in progress are drawn up to now, and those that wait for a lock name its holder", () => {
  const run: RunDetails = {
    ...failed,
    ...{ status: "running", ending: undefined, signals: [], crashes: 0, dueAt: at(70_000) },
    records: [
      record(1_000, { key: "reserve", took: 500 }),
      record(10_000, { key: "charge@1 started", outcome: "started" }),
    ],
    inProgress: [
      // Its record is newer than the last renewal.
      { key: "reserve", since: at(500) },
      { key: "charge", since: at(10_000) },
      { key: "ship", since: at(55_000), waitsFor: "truck/1" },
      { key: "~undo/pack", since: at(59_000) },
    ],
  };
  const lines = drawRun(run, 100, new Map([["truck/1", "web-1:47/a"]])).split("\n");
  expect(lines.slice(5).filter((line) => line !== "")).toEqual([
    "     1.00 s reserve               ok            500 ms                     █",
    "    1 m 0 s charge                begun         50.0 s                         ━━━━━━━━━━━━━━━━━━━━━",
    "    1 m 0 s ship                  waits                   5.00 s                                 ░░┄",
    "    1 m 0 s ↶ pack                begun         1.00 s                                             ━",
    "running  on host:123, lease ends in 10.0 s unless renewed",
    'ship waits for lock "truck/1", held by web-1:47/a, for 5.00 s',
  ]);
  const lost = { ...run, dueAt: at(20_000) };
  expect(timelineOf(lost).find(({ step }) => step === "charge")).toMatchObject({
    ...{ label: "begun", from: 10_000, at: 20_000 },
  });
});
