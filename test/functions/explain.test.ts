import { stripVTControlCharacters } from "node:util";
import { expect, test } from "vitest";
import { drawReplay, drawStory } from "../../functions/cli/terminal/draw-replay.ts";
import type { Handling, Observations } from "../../functions/oversell/observations.ts";
import { judge } from "../../functions/oversell/report.ts";
import { STRATEGIES } from "../../functions/oversell/strategy.ts";
import type { TraceEvent } from "../../functions/oversell/trace.ts";

type Moments = Partial<Record<TraceEvent["type"], number>>;

/** An order that a worker handled, with an event at each of the moments. */
function handled(worker: number, moments: Moments, answer: Handling["answer"] = "sold"): Handling {
  const trace = Object.entries(moments).map(([type, at]) => ({ type, at }) as TraceEvent);
  return { worker, orderId: `order-${worker}`, fault: undefined, answer, trace };
}

/** The sale of one unit, sold to as many orders as `sales` says. */
function sale(strategy: string, sales: number, handlings: readonly Handling[]): Observations {
  const buyers = Array.from({ length: sales }, (_, i) => `order-${i}`);
  const [chosen = STRATEGIES[0]] = STRATEGIES.filter(({ name }) => name === strategy);
  return {
    strategy: chosen as Observations["strategy"],
    stock: 1,
    totals: { remaining: 0, lowest: 0, sales: buyers },
    orders: buyers.map((orderId) => ({ orderId, answer: "sold", millis: 1 })),
    handlings,
    ttlMillis: 1_000,
    stuck: 0,
    millis: 10,
  };
}

const expired = [
  handled(0, { holds: 200, releases: 3_000 }),
  handled(1, { holds: 1_210, releases: 1_300 }),
];
/** The holder has learned late that it has the lock. */
const early = [
  handled(0, { holds: 200, releases: 900 }),
  handled(1, { holds: 500, releases: 600 }),
  handled(2, { holds: 550, releases: 700 }),
];
const frozen = [
  handled(0, { holds: 200, freezes: 410, releases: 3_000 }),
  handled(1, { holds: 1_500, releases: 1_600 }),
];

test.each([
  ["as-in-the-incident", 2, expired, "sold 2 of 1: two holders after the lock expired at 1.20 s"],
  [
    "as-in-the-incident",
    3,
    early,
    "sold 3 of 1: up to 3 holders at once after the lock expired at 0.50 s",
  ],
  [
    "as-in-the-incident",
    4,
    [handled(3, { holds: 10, releases: 190 }), ...early],
    "sold 4 of 1: up to 3 holders at once after the lock was gone at 0.50 s",
  ],
  [
    "owner-checked",
    4,
    [handled(3, { holds: 10, releases: 190 }), ...early],
    "sold 4 of 1: up to 3 holders at once after the lock expired at 0.50 s",
  ],
  ["renewed", 2, frozen, "sold 2 of 1: two holders after process 1 was frozen at 0.41 s"],
  [
    "version-column",
    1,
    [handled(0, {}, "refused"), handled(1, {})],
    "sold 1 of 1: 1 write on an old version changed nothing",
  ],
  ["select-for-update", 1, [], "sold 1 of 1: each sale waits until the stock's row is free"],
  ["decr-and-test", 1, [], "sold 1 of 1: DECR is atomic, and a result below zero is put back"],
  ["no-lock", 2, [], "sold 2 of 1: buyers read the same stock, and each of them sells"],
  [
    "process-lock",
    2,
    early,
    "sold 2 of 1: each process has a lock of its own, so buyers of two processes read the same stock",
  ],
  ["renewed", 1, frozen, "sold 1 of 1: two holders at once, which did no harm this time"],
  ["renewed", 1, frozen.slice(1), "sold 1 of 1: no two holders at once"],
  [
    "fence-claimed",
    1,
    [handled(0, { holds: 200, releases: 3_000 }, "refused"), ...expired.slice(1)],
    "sold 1 of 1: two holders at once, and the stock refused 1 late write",
  ],
])(
  "the result of %s, which sold %i of 1, is explained in one sentence",
  (name, sold, handlings, why) => {
    expect(judge(sale(name, sold, handlings)).why).toBe(why);
  },
);

test("a sale that is stuck names the process that died, and the buyers that wait", () => {
  const killed = [handled(0, { asks: 1, dies: 2 }, "killed")];
  const report = judge({ ...sale("setnx-then-expire", 0, killed), stuck: 2, totals: UNSOLD });
  expect(report.why).toBe(
    "sold 0 of 1: process 1 was killed between SETNX and EXPIRE, and 2 buyers wait for ever",
  );
  const replay = { store: "redis:", stock: 1, buyers: 2, workers: 1, seed: 1 };
  expect(drawReplay({ ...replay, strategies: [report] }, 80)).toMatch(
    /^Stuck: setnx-then-expire\. /m,
  );
});

const UNSOLD = { remaining: 1, lowest: 1, sales: [] };

test("a unit that DECR has taken, and nobody has sold, is explained", () => {
  const totals = { remaining: 0, lowest: 0, sales: [] };
  expect(judge({ ...sale("decr-and-test", 0, []), totals }).why).toBe(
    "sold 0 of 1: a process was killed between DECR and the record of its sale; 1 unit missing from the books",
  );
});

test("no line of a replay is wider than the terminal, and the conclusion names what oversold", () => {
  const strategies = STRATEGIES.map(({ name, operationIds }) =>
    judge(sale(name, operationIds ? 1 : 2, early)),
  );
  const report = { store: "sqlite:shop.db", stock: 1, buyers: 2, workers: 3, seed: 1, strategies };
  const drawn = stripVTControlCharacters(drawReplay(report, 80));
  for (const line of drawn.split("\n")) expect(line.length).toBeLessThanOrEqual(80);
  for (const { name } of STRATEGIES) expect(drawn).toMatch(new RegExp(`^[✓~✗]  ${name} `, "m"));
  expect(drawn).toMatch(
    /^Oversold: as-in-the-incident, setnx-then-expire, no-lock,\s+process-lock,/m,
  );
  expect(drawn).toMatch(/^Safe: fence-claimed, decrement-once, lockstep\./m);
});

test("a strategy that breaks its promise is the conclusion", () => {
  const strategies = [judge(sale("lockstep", 2, expired))];
  const report = { store: "sqlite:shop.db", stock: 1, buyers: 2, workers: 3, seed: 1, strategies };
  expect(drawReplay(report, 80)).toContain("BROKEN: lockstep claims to be safe and is not.");
});

test("the story says which strategies go wrong with which fault, in 80 columns", () => {
  const part = (adds: string, sold: number, firstWrong: readonly string[]) => {
    const strategies = ["renewed", "lockstep"].map((name) =>
      judge(sale(name, name === "renewed" ? sold : 1, [])),
    );
    return { adds, strategies, firstWrong };
  };
  const parts = [part("slow service", 1, []), part("+ freezes", 2, ["renewed"])];
  const told = { store: "sqlite:shop.db", stock: 1, buyers: 2, workers: 3, seed: 1, parts };
  const drawn = stripVTControlCharacters(drawStory(told, 80));
  for (const line of drawn.split("\n")) expect(line.length).toBeLessThanOrEqual(80);
  expect(drawn).toMatch(/^renewed +~ 1 +✗ 2$/m);
  expect(drawn).toMatch(/^lockstep +✓ 1 +✓ 1$/m);
  expect(drawn).toMatch(/^slow service +nothing else goes wrong$/m);
  expect(drawn).toMatch(/^\+ freezes +goes wrong now: renewed$/m);
});
