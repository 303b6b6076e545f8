import { fileURLToPath } from "node:url";
import { asNumber, asText, type Database, sql } from "../../core/database/sql.ts";
import { sqlInventory } from "../../core/inventory/sql.ts";
import { sqlJournal } from "../../core/journal/sql.ts";
import { decodeError } from "../../core/steps/codec.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { migrate } from "../../infra/migrate.ts";
import { open } from "../../infra/open.ts";
import { type Running, startCli } from "../support/cli.ts";
import { pause, until } from "../support/until.ts";
import placeOrder, { SOAK_TABLES, type SoakOrder } from "./orders.ts";

export interface SoakOptions {
  /** URLs: a database of the run's own, and the store of the locks. */
  readonly store: string;
  readonly locks: string;
  readonly seconds: number;
  readonly onProgress?: (line: string) => void;
}

export interface SoakReport {
  readonly begun: number;
  readonly completed: number;
  readonly declined: number;
  readonly soldOut: number;
  readonly kills: number;

  /** Charges that were asked for more than once, as at-least-once steps may be. */
  readonly repeatedCharges: number;

  /** All that is wrong; empty when nothing is. */
  readonly faults: readonly string[];
}

const WORKERS = 4;
const KILL_EVERY = 3_000;
const SKUS = 8;

/** On a busy machine it goes on until so many were killed. */
const LEAST_KILLS = 4;

/** Units of each sku for each second: too few for those that are wanted most. */
const STOCK_PER_SECOND = 3;

/** How many runs are under way at a time. */
const OPEN_RUNS = 80;

/** How long the rest may take once no more orders come. */
const LIMIT = 180_000;

const MODULE = fileURLToPath(new URL("./orders.ts", import.meta.url));

/**
 * Places orders while 4 worker processes carry them, two of which are killed and started again every 3 seconds; then
 * counts everything.
 */
export async function soak({ store, locks, seconds, onProgress = () => {} }: SoakOptions) {
  await using opened = await open(store);
  const { database } = opened;
  if (!database) throw new Error("the soak needs a database");
  await migrate(database);
  for (const statement of SOAK_TABLES) await database.packet([statement]);
  const inventory = sqlInventory(database);
  const stock = Math.ceil(STOCK_PER_SECOND * seconds);
  for (let i = 0; i < SKUS; i += 1) {
    await inventory.set({ sku: `sku-${i}`, quantity: stock, operationId: `set-${i}` });
  }
  const journal = sqlJournal(database);
  const runtime = createRuntime({ journal, owner: "soak" });
  const workflow = placeOrder({ inventory, database, locks: opened.locks });
  const start = () =>
    startCli(["worker", MODULE, "--store", store, "--locks", locks, "--lease", "3s"]);
  const crew: Running[] = Array.from({ length: WORKERS }, start);
  const orders: SoakOrder[] = [];
  const endAt = performance.now() + seconds * 1_000;
  let kills = 0;
  let killAt = performance.now() + KILL_EVERY;
  const ended = async () =>
    count(database, "lockstep_run WHERE status NOT IN ('running', 'parked')");
  try {
    while (
      performance.now() < endAt ||
      (kills < LEAST_KILLS && performance.now() < endAt + LIMIT)
    ) {
      if (orders.length - (await ended()) < OPEN_RUNS) {
        const order = newOrder(orders.length);
        orders.push(order);
        await runtime.start(workflow, order);
      } else {
        await pause(20);
      }
      if (performance.now() < killAt) continue;
      killAt += KILL_EVERY;
      for (const at of await twoAtWork(database, crew)) {
        crew[at]?.child.kill("SIGKILL");
        crew[at] = start();
        kills += 1;
      }
      onProgress(`${orders.length} orders, ${await ended()} answered, ${kills} processes killed`);
    }
    await until(async () => (await ended()) === orders.length, LIMIT);
  } finally {
    for (const { child } of crew) child.kill("SIGTERM");
  }
  const ends = await Promise.all(crew.map(({ finished }) => finished));
  const unclean = ends.flatMap(({ status, stderr }) =>
    status === 0 ? [] : [`a worker ended with ${status}: ${stderr}`],
  );
  const report = await judge(database, orders, stock);
  const held = await heldIn(locks);
  const faults = [...report.faults, ...unclean, ...held.map((name) => `${name} is still locked`)];
  return { ...report, kills, faults } satisfies SoakReport;
}

function newOrder(number: number): SoakOrder {
  return {
    orderId: `order-${number}`,
    sku: `sku-${Math.floor(SKUS * Math.random() ** 2)}`,
    quantity: 1 + (number % 3),
    declined: number % 7 === 3,
  };
}

/** Two at random of those that have carried a run by now: a busy machine takes its time to start a process. */
async function twoAtWork(database: Database, crew: readonly Running[]): Promise<readonly number[]> {
  const owners = await database.read(sql`SELECT DISTINCT owner FROM lockstep_run`);
  const pids = new Set(owners.map(({ owner }) => asText(owner).split(":").at(-1)));
  return [...crew.keys()]
    .filter((at) => pids.has(String(crew[at]?.child.pid)))
    .sort(() => Math.random() - 0.5)
    .slice(0, 2);
}

/** Whatever a killed process had locked is free by the time that all runs have ended, and 3 s more. */
async function heldIn(url: string): Promise<readonly string[]> {
  await using store = await open(url);
  const list = async () => (await store.locks.list()).map(({ name }) => name);
  await until(async () => (await list()).length === 0, 15_000).catch(() => {});
  return await list();
}

/** Compares what the runs say with what the tables say. */
async function judge(database: Database, orders: readonly SoakOrder[], supplied: number) {
  const faults: string[] = [];
  const expect = (what: string, actual: number, expected: number) => {
    if (actual !== expected) faults.push(`${what}: ${actual}, not ${expected}`);
  };
  const journal = sqlJournal(database);
  const ends = { completed: 0, DECLINED: 0, SOLD_OUT: 0 };
  const sold = new Map<string, number>();
  let units = 0;
  for (const { orderId, sku, quantity, declined } of orders) {
    const run = await journal.show(orderId);
    if (!run?.ending) {
      faults.push(`${orderId} was lost`);
    } else if (run.status === "completed") {
      ends.completed += 1;
      units += quantity;
      sold.set(sku, (sold.get(sku) ?? 0) + quantity);
      if (declined) faults.push(`${orderId} was declined, and yet it is completed`);
    } else {
      const { code } = decodeError(run.ending.value);
      if (code === "DECLINED" || code === "SOLD_OUT") ends[code] += 1;
      else faults.push(`${orderId} failed with ${run.ending.value}`);
      if (!run.ending.compensated) faults.push(`${orderId} was not undone`);
    }
  }
  const inventory = sqlInventory(database);
  for (let i = 0; i < SKUS; i += 1) {
    const stock = await inventory.get(`sku-${i}`);
    const left = supplied - (sold.get(`sku-${i}`) ?? 0);
    expect(`on hand of sku-${i}`, stock?.onHand ?? -1, left);
    if (left < 0) faults.push(`sku-${i} was oversold`);
  }
  const [total] = await database.read(sql`SELECT orders, units FROM soak_total`);
  expect("orders recorded", asNumber(total?.orders), ends.completed);
  expect("units recorded", asNumber(total?.units), units);
  expect("orders noted", await count(database, "soak_done"), ends.completed);
  expect("charges", await count(database, "soak_charge"), ends.completed + ends.DECLINED);
  return {
    begun: orders.length,
    completed: ends.completed,
    declined: ends.DECLINED,
    soldOut: ends.SOLD_OUT,
    repeatedCharges: await count(database, "soak_charge WHERE calls > 1"),
    faults,
  };
}

async function count(database: Database, from: string): Promise<number> {
  const query = { texts: [`SELECT COUNT(*) AS rows_found FROM ${from}`], values: [] };
  const [row] = await database.read(query);
  return asNumber(row?.rows_found);
}
