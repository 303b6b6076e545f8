import { expect, test } from "vitest";
import { renderTrace } from "../../functions/oversell/chrome-trace.ts";
import { drawIncident } from "../../functions/oversell/draw-incident.ts";
import { incidentOf } from "../../functions/oversell/incident.ts";
import type { Handling, Observations } from "../../functions/oversell/observations.ts";
import { STRATEGIES } from "../../functions/oversell/strategy.ts";
import { overlapping, type TraceEvent } from "../../functions/oversell/trace.ts";

type Moment = readonly [type: TraceEvent["type"], at: number, details?: Partial<TraceEvent>];

function handled(
  worker: number,
  answer: Handling["answer"],
  ...moments: readonly Moment[]
): Handling {
  const trace = moments.map(([type, at, details]) => ({ type, at, ...details }));
  return { worker, orderId: `order-${worker}`, fault: undefined, answer, trace };
}

/** The sale of one unit under a lock with a ttl of one second. */
function sale(name: string, handlings: readonly Handling[]): Observations {
  const [strategy] = STRATEGIES.filter((one) => one.name === name);
  const sales = handlings.flatMap(({ orderId, answer }) => (answer === "sold" ? [orderId] : []));
  return {
    strategy: strategy as Observations["strategy"],
    stock: 1,
    totals: { remaining: 0, lowest: 0, sales },
    orders: sales.map((orderId) => ({ orderId, answer: "sold", millis: 1 })),
    handlings,
    ttlMillis: 1_000,
    stuck: 0,
    millis: 4_000,
  };
}

const OVERSOLD = sale("as-in-the-incident", [
  handled(
    0,
    "sold",
    ...([
      ["holds", 200],
      ["calls", 210],
      ["identified", 3_000],
      ["reads", 3_010, { stock: 1, sentAt: 3_005 }],
      ["sold", 3_050, { stock: 0, sentAt: 3_040 }],
      ["releases", 3_060],
    ] as const),
  ),
  handled(
    1,
    "sold",
    ...([
      ["holds", 1_250],
      ["reads", 3_015, { stock: 1, sentAt: 3_012 }],
      ["sold", 3_055, { stock: 0, sentAt: 3_045 }],
      ["releases", 3_500],
    ] as const),
  ),
  handled(2, "sold-out", ["holds", 2_300], ["reads", 3_400, { stock: 0 }], ["releases", 3_900]),
]);

const REFUSED = sale("lockstep", [
  handled(
    0,
    "refused",
    ["holds", 100, { token: "41" }],
    ["claimed", 120, { sentAt: 110 }],
    ["freezes", 200],
    ["wakes", 3_000],
    ["refused", 3_020, { sentAt: 3_010 }],
    ["releases", 3_030],
  ),
  handled(
    1,
    "sold",
    ["holds", 1_200, { token: "42" }],
    ["claimed", 1_220, { sentAt: 1_210 }],
    ["sold", 1_300, { stock: 0, sentAt: 1_290 }],
    ["releases", 1_310],
  ),
]);

test("every decisive moment of an oversell is told in a sentence", () => {
  const told = incidentOf(OVERSOLD).frames.filter(({ isKey }) => isKey);
  expect(told.map(({ at, text }) => `${at} ${text}`)).toEqual([
    "1200 The lock of process 1 expires. Its holder does not notice.",
    "1250 Process 2 gets the lock. Process 1 still believes that it has it.",
    "2250 The lock of process 2 expires. Its holder does not notice.",
    "2300 Process 3 gets the lock. Process 1 still believes that it has it.",
    "3000 The identity service answers process 1 after 2.79 s. Its lock is gone, and it does not notice.",
    "3055 Process 2 sells: it read 1, and writes 0. The stock was at 0 by then: a sale is forgotten. So far, 1 sold that does not exist.",
    "3060 Process 1 deletes the lock, which belongs to process 3 by now.",
  ]);
});

test("a late write is told with the fences of both holders", () => {
  const told = incidentOf(REFUSED).frames.map(({ text }) => text);
  expect(told).toContain(
    "Process 1 (fence 41) wakes and goes on where it was. Process 2 (fence 42) has claimed the stock meanwhile.",
  );
  expect(told).toContain(
    "Process 1 (fence 41) writes late. Process 2 (fence 42) has claimed the stock. Refused.",
  );
});

test("a lock in each process is told as one of many, and no store grants it", () => {
  const incident = incidentOf(
    sale("process-lock", [
      handled(
        0,
        "sold",
        ["asks", 100],
        ["holds", 110],
        ["calls", 120],
        ["identified", 2_000],
        ["reads", 2_020, { sentAt: 2_010, stock: 1 }],
        ["sold", 2_040, { sentAt: 2_030, stock: 0 }],
        ["releases", 2_050],
      ),
      handled(1, "killed", ["asks", 1_900], ["holds", 1_910], ["dies", 2_045]),
    ]),
  );
  expect(incident.frames.map(({ text }) => text)).toEqual([
    "Process 1 takes the lock of its own process.",
    "Process 2 takes the lock of its own process. Process 1 holds one of its own, too.",
    "The identity service answers process 1 after 1.88 s.",
    "Process 1 reads the stock: 1 left.",
    "Process 1 sells, and writes 0.",
    "Process 2 is killed.",
    "Process 1 releases the lock of its own process.",
  ]);
  expect(incident.beliefs.map(({ overlaps }) => overlaps)).toEqual([false, true]);
  expect(incident.grants).toEqual([]);
  expect(incident.messages.map(({ type }) => type)).toEqual(["reads", "sold"]);
});

test("a sale with a fence makes older fences late, and is told as the claim that it is", () => {
  const late = sale("lockstep", [
    handled(0, "sold", ["holds", 100, { token: "9" }], ["sold", 150, { sentAt: 140 }]),
    handled(1, "refused", ...HELD_TOO_LONG),
    handled(0, "sold", ["holds", 1_250, { token: "11" }], ["sold", 1_300, { sentAt: 1_290 }]),
  ]);
  const incident = incidentOf(late);
  const told = incident.frames.filter(({ worker }) => worker === 1).map(({ text }) => text);
  expect(told).toContain(
    "Process 2 (fence 10) wakes and goes on where it was. Process 1 (fence 11) has claimed the stock meanwhile.",
  );
  expect(told).toContain(
    "Process 2 (fence 10) writes late. Process 1 (fence 11) has claimed the stock. Refused.",
  );
  const { lanes } = drawIncident(incident, { from: 0, to: 4_000, scale: 0.1 });
  expect(lanes).toContain("fence 10 &lt; fence 11: refused");
});

const HELD_TOO_LONG = [
  ["asks", 150],
  ["holds", 200, { token: "10" }],
  ["freezes", 210],
  ["wakes", 3_000],
  ["refused", 3_020, { sentAt: 3_010 }],
  ["releases", 3_030],
] as const;

test("a process that wakes is not told to be late because of an older fence", () => {
  const early = sale("lockstep", [
    handled(0, "sold", ["holds", 100, { token: "9" }], ["sold", 150, { sentAt: 140 }]),
    handled(1, "refused", ...HELD_TOO_LONG),
  ]);
  const told = incidentOf(early).frames.map(({ text }) => text);
  expect(told).toContain("Process 2 (fence 10) wakes and goes on where it was.");
  expect(told).toContain("Process 2 (fence 10) writes late. Refused.");
});

test("the arrows to the lock store and to the stock carry the fences that the requests carry", () => {
  const arrows = (strategy: string) => {
    const { lanes } = drawIncident(
      incidentOf(
        sale(strategy, [handled(0, "sold", ...HELD_TOO_LONG.slice(0, 2), ...SOLD_UNDER_FENCE)]),
      ),
      { from: 0, to: 4_000, scale: 0.1 },
    );
    return [...lanes.matchAll(/class="message ([a-z]+)"(?: data-fence="(\d+)")?/g)].map(
      ([, type, fence]) => `${type} ${fence ?? "without a fence"}`,
    );
  };
  const toStore = ["asks without a fence", "releases 10"];
  expect(arrows("fence-claimed")).toEqual([
    toStore[0],
    "claimed 10",
    "reads without a fence",
    "sold 10",
    toStore[1],
  ]);
  expect(arrows("renewed")).toEqual([
    toStore[0],
    "claimed without a fence",
    "reads without a fence",
    "sold without a fence",
    toStore[1],
  ]);
});

const SOLD_UNDER_FENCE = [
  ["claimed", 220, { sentAt: 210 }],
  ["reads", 240, { sentAt: 230, stock: 1 }],
  ["sold", 260, { sentAt: 250, stock: 0 }],
  ["releases", 270],
] as const;

test("a write below a stock that a late write has raised forgets no sale", () => {
  const reads = (at: number, stock: number) => ["reads", at, { stock }] as const;
  const sold = (at: number, stock: number) => ["sold", at, { stock }] as const;
  const { frames } = incidentOf({
    ...sale("as-in-the-incident", [
      handled(0, "sold", ["holds", 100], reads(110, 9), sold(900, 8)),
      handled(1, "sold", ["holds", 200], reads(210, 9), sold(220, 8)),
      handled(2, "sold", ["holds", 300], reads(310, 8), sold(320, 7)),
      handled(3, "sold", ["holds", 400], reads(410, 7), sold(950, 6)),
    ]),
    stock: 9,
  });
  const told = frames.map(({ text }) => text);
  expect(told).toContain(
    "Process 1 sells: it read 9, and writes 8. The stock was at 7 by then: 2 sales are forgotten.",
  );
  expect(told).toContain("Process 4 sells: it read 7, and writes 6. The stock was at 8 by then.");
});

test("a process that dies between SETNX and EXPIRE leaves a lock for ever", () => {
  const died = sale("setnx-then-expire", [handled(0, "killed", ["asks", 100], ["dies", 200])]);
  const { frames, grants } = incidentOf(died);
  expect(frames.map(({ text }) => text)).toEqual([
    "Process 1 is killed between SETNX and EXPIRE. Its lock stays for ever.",
  ]);
  expect(grants).toMatchObject([{ worker: 0, from: 200, to: 4_000 }]);
});

test("a unit that DECR has taken is gone before its sale is recorded", () => {
  const { curve, frames } = incidentOf(
    sale("decr-and-test", [
      handled(0, "sold", ["takes", 100, { stock: 0 }], ["sold", 300]),
      handled(1, "sold-out", ["takes", 200, { stock: -1 }]),
    ]),
  );
  expect(frames.map(({ text }) => text)).toEqual([
    "Process 1 subtracts a unit: 0 left.",
    "Process 2 subtracts a unit, and adds it again: none was left.",
    "Process 1 sells, and the sale is recorded.",
  ]);
  expect(curve.map(({ recorded, left }) => [recorded, left])).toEqual([
    [1, 1],
    [0, 1],
    [0, 0],
  ]);
});

test("the stock falls below zero where a unit is sold that does not exist", () => {
  const { curve, report } = incidentOf(OVERSOLD);
  expect(report.oversold).toBe(1);
  expect(curve.map(({ at, recorded, left }) => [at, recorded, left])).toEqual([
    [0, 1, 1],
    [3_050, 0, 0],
    [3_055, 0, -1],
  ]);
  expect(incidentOf(REFUSED).curve.at(-1)).toMatchObject({ recorded: 0, left: 0 });
});

test("the store's holder ends with the ttl, and with the next holder", () => {
  const spans = incidentOf(OVERSOLD).grants.map(({ worker, from, to }) => [worker, from, to]);
  expect(spans).toEqual([
    [0, 200, 1_200],
    [1, 1_250, 2_250],
    [2, 2_300, 3_060],
  ]);
});

test("as many overlaps, sales and refusals are drawn as were counted", () => {
  for (const observed of [OVERSOLD, REFUSED]) {
    const incident = incidentOf(observed);
    const { lanes } = drawIncident(incident, { from: 0, to: 4_000, scale: 0.1 });
    const count = (name: string) => lanes.split(name).length - 1;
    expect(count('"belief second"')).toBe(incident.report.overlaps);
    expect(count('"message refused"')).toBe(incident.report.refused);
    expect(count('"bad-mark"')).toBe(incident.report.oversold);
  }
});

test("a trace obeys its format, and has as many overlaps and refusals as were counted", () => {
  const observed = [OVERSOLD, REFUSED];
  const { traceEvents } = JSON.parse(renderTrace(observed));
  for (const event of traceEvents) {
    expect(event).toMatchObject({
      name: expect.any(String),
      ph: expect.stringMatching(/^[MXiCsf]$/),
      pid: expect.toSatisfy(Number.isSafeInteger),
      tid: expect.toSatisfy(Number.isSafeInteger),
      ts: expect.toSatisfy((ts) => Number.isSafeInteger(ts) && ts >= 0),
    });
    if (event.ph === "X") expect(event.dur).toBeGreaterThanOrEqual(0);
  }
  const of = (pid: number, change: object) =>
    traceEvents.filter((event: object) =>
      Object.entries({ pid, ...change }).every(([key, value]) => Reflect.get(event, key) === value),
    );
  for (const [i, one] of observed.entries()) {
    const { report, workers } = incidentOf(one);
    const toSpan = ({ ts, dur }: { ts: number; dur: number }) => ({ from: ts, to: ts + dur });
    expect(overlapping(of(i + 1, { cat: "belief" }).map(toSpan))).toHaveLength(report.overlaps);
    expect(of(i + 1, { name: "second holder" })).toHaveLength(report.overlaps);
    expect(of(i + 1, { name: "refused", cat: "answer" })).toHaveLength(report.refused);
    expect(of(i + 1, { name: "thread_name" })).toHaveLength(workers + 2);
    const ends = (ph: string) => of(i + 1, { ph }).map(({ id }: { id: string }) => id);
    expect(ends("s")).toEqual(ends("f"));
    expect(new Set(ends("s")).size).toBe(ends("s").length);
    expect(ends("s").length).toBeGreaterThan(0);
  }
  expect(of(1, { ph: "C" }).at(-1)).toMatchObject({ ts: 3_055_000, args: { left: -1 } });
  expect(of(1, { cat: "belief" })[0]).toMatchObject({ ts: 200_000, dur: 2_860_000 });
});

test("spans on one lane of a trace contain each other or lie apart", () => {
  const { traceEvents } = JSON.parse(renderTrace([OVERSOLD, REFUSED]));
  const spans = traceEvents.filter(({ ph }: { ph: string }) => ph === "X");
  for (const [i, a] of spans.entries()) {
    for (const b of spans.slice(i + 1)) {
      if (a.pid !== b.pid || a.tid !== b.tid) continue;
      const [first, second] = a.ts < b.ts || (a.ts === b.ts && a.dur >= b.dur) ? [a, b] : [b, a];
      const end = first.ts + first.dur;
      expect(second.ts >= end || second.ts + second.dur <= end).toBe(true);
    }
  }
});
