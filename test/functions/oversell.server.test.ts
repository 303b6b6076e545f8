import { describe, expect, test } from "vitest";
import type { OversellReport } from "../../functions/oversell/oversell.ts";
import { isBroken, isWrong, judge, type StrategyReport } from "../../functions/oversell/report.ts";
import { scheduleDeliveries } from "../../functions/oversell/schedule.ts";
import {
  claimsSafe,
  existsOn,
  STRATEGIES,
  type Strategy,
} from "../../functions/oversell/strategy.ts";
import { overlapping } from "../../functions/oversell/trace.ts";
import { cli } from "../support/cli.ts";
import { incidentStores } from "../support/incident-stores.ts";
import { cells, EVERY_VERSION } from "../support/matrix.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { temporaryFile } from "../support/under-test.ts";

const INCIDENT = STRATEGIES[0] as Strategy;
const LOCKSTEP = STRATEGIES.at(-1) as Strategy;

/** Whether every store with stock has the strategy. */
function isCommon(strategy: Strategy): boolean {
  return ["sqlite:a.db", "etcd://a", "redis://a", "dynamodb://a/shop"].every((store) =>
    existsOn(strategy, { store }),
  );
}

// One store at a time: each incident starts many processes.
describe.each(cells(incidentStores))("the incident on %s", (name, make) => {
  test("oversells without the repairs and does not with them", async () => {
    const { url, remove } = await make();
    // Each fault takes three ttls, and etcd's shortest ttl is a second.
    const isShort = name !== "sqlite" && !EVERY_VERSION;
    const faults = isShort ? ["--slow", "1", "--freezes", "1", "--kills", "1"] : [];
    // Strategies that only some stores have: known-ways.all.server.test.ts.
    const known = STRATEGIES.filter(
      (strategy) => existsOn(strategy, { store: url }) && (name === "sqlite" || isCommon(strategy)),
    );
    const named = name === "sqlite" ? [] : known.flatMap(({ name }) => ["--strategy", name]);
    const options = ["--json", "--store", url, ...faults, ...named];
    const { status, stdout, stderr } = await cli("oversell", ...options);
    expect(stderr).toBe("");
    const report: OversellReport = JSON.parse(stdout);
    expect(stdout).toBe(`${JSON.stringify(report)}\n`);
    expect(Object.keys(report)).toEqual([
      "store",
      "stock",
      "buyers",
      "workers",
      "seed",
      "strategies",
    ]);
    expect(report.strategies.map(({ name }) => name)).toEqual(known.map(({ name }) => name));
    const of = (name: string) =>
      report.strategies.find((strategy) => strategy.name === name) as StrategyReport;
    expect(Object.keys(of("lockstep"))).toEqual([
      "name",
      "claimsSafe",
      "sold",
      "oversold",
      "lost",
      "duplicates",
      "lowestStock",
      "overlaps",
      "refused",
      "stuck",
      "p50Millis",
      "p99Millis",
      "ordersPerSec",
      "why",
    ]);
    expect(of("as-in-the-incident").oversold).toBeGreaterThan(0);
    expect(of("as-in-the-incident").duplicates).toBeGreaterThan(0);
    expect(of("as-in-the-incident").overlaps).toBeGreaterThan(0);
    expect(of("no-lock").lowestStock).toBeLessThan(0);
    expect(of("process-lock").oversold).toBeGreaterThan(0);
    expect(of("decrement").oversold).toBe(0);
    expect(of("decrement").duplicates).toBeGreaterThan(0);
    const safe = report.strategies.filter((strategy) => strategy.claimsSafe);
    expect(safe.map(({ name }) => name)).toEqual(["fence-claimed", "decrement-once", "lockstep"]);
    for (const strategy of safe) {
      expect(strategy).toMatchObject({
        sold: 30,
        oversold: 0,
        lost: 0,
        duplicates: 0,
        lowestStock: 0,
        stuck: 0,
      });
    }
    // That the freezes were long enough to matter: late holders were there, and were refused.
    expect(of("lockstep").overlaps).toBeGreaterThan(0);
    expect(of("lockstep").refused + of("fence-claimed").refused).toBeGreaterThan(0);
    expect(status).toBe(0);
    await remove();
  }, 300_000);
});

describe.each(cells(incidentStores.filter(([name]) => name !== "sqlite")))(
  "a connection to %s that loses answers",
  (_, make) => {
    test("ends no sale, and its orders are delivered again", async () => {
      const { url, remove } = await make();
      const port = /(?<=:)[0-9]+(?=[/?]|$)/.exec(url)?.[0] ?? "";
      await using proxy = await TcpProxy.to(Number(port));
      const losing = setInterval(() => proxy.isToLose || proxy.loseNextAnswer(40), 10);
      const store = url.replace(`:${port}`, `:${proxy.port}`);
      const size = ["--stock", "8", "--buyers", "10", "--duplicates", "0"];
      const faults = ["--slow", "0", "--freezes", "0", "--kills", "0"];
      const names = ["--strategy", "owner-checked", "--strategy", "lockstep"];
      const options = ["--json", "--store", store, ...names, ...size, ...faults];
      const { status, stdout, stderr } = await cli("oversell", ...options);
      clearInterval(losing);
      expect(stderr).toBe("");
      const { strategies }: OversellReport = JSON.parse(stdout);
      expect(strategies.at(-1)).toMatchObject({ sold: 8, oversold: 0, lost: 0, lowestStock: 0 });
      expect(status).toBe(0);
      await remove();
    }, 300_000);
  },
);

test("a lock in each process oversells without any fault", async () => {
  const { file, remove } = await temporaryFile();
  const none = ["--slow", "0", "--freezes", "0", "--kills", "0", "--duplicates", "0"];
  const only = ["--strategy", "process-lock", "--store", `sqlite:${file}`];
  const { stdout, status } = await cli("oversell", "--json", ...only, ...none);
  const [sale] = JSON.parse(stdout).strategies as StrategyReport[];
  expect(sale?.oversold).toBeGreaterThan(0);
  expect(sale).toMatchObject({ claimsSafe: false, duplicates: 0, stuck: 0 });
  expect(status).toBe(0);
  await remove();
});

test("a lock alone loses updates of frozen holders; a fence claimed before the read loses none", async () => {
  const { file, remove } = await temporaryFile();
  const only = ["--strategy", "renewed", "--strategy", "fence-claimed"];
  const faults = ["--freezes", "12", "--slow", "0", "--kills", "0", "--duplicates", "0"];
  const size = ["--stock", "150", "--buyers", "150", "--seed", "3"];
  const store = ["--json", "--store", `sqlite:${file}`];
  const { stdout } = await cli("oversell", ...only, ...faults, ...size, ...store);
  const [renewed, claimed] = JSON.parse(stdout).strategies as StrategyReport[];
  expect(renewed?.lost).toBeGreaterThan(0);
  expect(claimed).toMatchObject({ sold: 150, oversold: 0, lost: 0, duplicates: 0 });
  expect(claimed?.refused).toBeGreaterThan(0);
  await remove();
});

describe("the judge", () => {
  const orders = ["a", "b", "c"].map((orderId) => ({
    orderId,
    answer: "sold" as const,
    millis: 1,
  }));
  const seen = { stock: 3, orders, handlings: [], ttlMillis: 150, stuck: 0, millis: 10 };
  const books = { remaining: 0, lowest: 0, sales: ["a", "b", "c"] };
  const judged = (change: object, strategy = LOCKSTEP) =>
    judge({ ...seen, strategy, totals: { ...books, ...change } });

  test("reports no problem for a correct sale", () => {
    expect(judged({})).toMatchObject({ sold: 3, oversold: 0, lost: 0, duplicates: 0 });
    expect(isBroken(judged({}))).toBe(false);
  });

  test("counts oversold, duplicated and lost units", () => {
    expect(judged({ sales: ["a", "b", "c", "d"] })).toMatchObject({ oversold: 1, lost: 1 });
    expect(judged({ sales: ["a", "b", "b"] })).toMatchObject({ duplicates: 1, lost: 1 });
    expect(judged({ remaining: 1 })).toMatchObject({ lost: 1 });
    expect(judged({ remaining: 1, sales: ["a", "b"] })).toMatchObject({ lost: 1, oversold: 0 });
  });

  test("calls only strategies broken that claim to be safe", () => {
    const oversold = { remaining: 0, sales: ["a", "b", "c", "d"] };
    expect(isBroken(judged(oversold))).toBe(true);
    expect(isBroken(judged(oversold, INCIDENT))).toBe(false);
  });

  test("calls a sale wrong whose buyers wait for ever", () => {
    expect(isWrong(judged({}))).toBe(false);
    const totals = { remaining: 3, lowest: 3, sales: [] };
    const none = { ...seen, strategy: INCIDENT, orders: [], stuck: 3, totals };
    expect(judge(none)).toMatchObject({ sold: 0, lost: 0, stuck: 3, p99Millis: 0 });
    expect(isWrong(judge(none))).toBe(true);
  });

  test("counts overlapping holders", () => {
    const hold = (from: number, to: number) => ({ from, to });
    const holds = [hold(0, 2), hold(2, 9), hold(3, 4), hold(5, 6), hold(9, 10)];
    expect(overlapping(holds)).toEqual([hold(3, 4), hold(5, 6)]);
  });

  test("considers a strategy safe if late writes are refused and every order counts once", () => {
    expect(STRATEGIES.filter(claimsSafe).map(({ name }) => name)).toEqual([
      "fence-claimed",
      "decrement-once",
      "lockstep",
    ]);
    for (const stock of ["version-column", "select-for-update"] as const) {
      expect(claimsSafe({ ...INCIDENT, stock, operationIds: true })).toBe(true);
    }
  });
});

test("the same seed gives the same deliveries, and each fault happens while stock is left", () => {
  const demand = {
    stock: 20,
    buyers: 50,
    seed: 7,
    faults: { slow: 2, freeze: 3, "kill-before": 1, "kill-after": 1 },
    duplicates: 5,
  };
  const deliveries = scheduleDeliveries(demand);
  expect(scheduleDeliveries(demand)).toEqual(deliveries);
  expect(scheduleDeliveries({ ...demand, seed: 8 })).not.toEqual(deliveries);
  const faults = deliveries.filter(({ fault }) => fault !== undefined);
  expect(faults.map(({ fault }) => fault).sort()).toEqual(
    ["freeze", "freeze", "freeze", "kill-after", "kill-before", "slow", "slow"].sort(),
  );
  expect(deliveries.findLastIndex(({ fault }) => fault !== undefined)).toBeLessThan(25);
  expect(new Set(deliveries.map(({ orderId }) => orderId)).size).toBe(50);
  expect(deliveries.length).toBeGreaterThan(50);
});
