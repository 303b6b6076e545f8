import { fileURLToPath } from "node:url";
import { asNumber, asText, type Database, sql } from "../../core/database/sql.ts";
import { decode, decodeError } from "../../core/steps/codec.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { attemptKey } from "../../core/steps/step-keys.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { open } from "../../infra/open.ts";
import { type Running, startCli } from "../support/cli.ts";
import { pause, until } from "../support/until.ts";
import soakWorkflows, { SOAK_TABLES, type SoakOrder, soakLedger } from "./orders.ts";

export interface SoakOptions {
  /** The URLs of an empty database and of the lock store. */
  readonly store: string;
  readonly locks: string;
  readonly seconds: number;
  readonly onProgress?: (line: string) => void;
}

export interface SoakReport {
  readonly started: number;
  readonly completed: number;
  readonly declined: number;
  readonly soldOut: number;

  /** Orders that were cancelled before their end, and undone. */
  readonly cancelled: number;
  /** Runs that placed several of the orders as their children. */
  readonly baskets: number;
  readonly kills: number;

  /** Charges requested more than once, as at-least-once steps may be. */
  readonly repeatedCharges: number;

  /** Broken guarantees; empty if none was broken. */
  readonly faults: readonly string[];
}

const WORKERS = 4;
const KILL_EVERY = 3_000;
const SKUS = 8;

/** One of so many orders is cancelled, within this time in milliseconds. */
const CANCELLED = 9;
const CANCEL_WITHIN = 4_000;

/** The minimum number of killed processes: a busy machine takes longer. */
const MIN_KILLS = 4;

/** Units of each sku per second: too few for the most popular skus. */
const STOCK_PER_SECOND = 3;

/** The number of orders in a basket. */
const BASKET = 5;

/** The number of open runs at a time. */
const OPEN_RUNS = 80;

/** How long open runs may take after the last order, in milliseconds. */
const LIMIT = 180_000;

const MODULE = fileURLToPath(new URL("./orders.ts", import.meta.url));

/**
 * Places orders for 4 worker processes. Kills and replaces two of them every 3 seconds, as long as orders are
 * answered. Then compares all counts.
 */
export async function soak({ store, locks, seconds, onProgress = () => {} }: SoakOptions) {
  await using opened = await open(store);
  const { database } = opened;
  await migrate(database);
  for (const statement of SOAK_TABLES) await database.batch([statement]);
  const inventory = sqlInventory(database);
  const stock = Math.ceil(STOCK_PER_SECOND * seconds);
  for (let i = 0; i < SKUS; i += 1) {
    await inventory.set({ sku: `sku-${i}`, quantity: stock, operationId: `set-${i}` });
  }
  const journal = sqlJournal(database);
  const runtime = createRuntime({ journal, owner: "soak" });
  const { placeOrder, placeBasket } = soakWorkflows({ inventory, database, locks: opened.locks });
  const start = () =>
    startCli(["worker", MODULE, "--store", store, "--locks", locks, "--lease", "3s"]);
  const workers: Running[] = Array.from({ length: WORKERS }, start);
  const orders: PlacedOrder[] = [];
  const baskets: string[] = [];
  const cancels: { readonly runId: string; readonly at: number }[] = [];
  const endAt = performance.now() + seconds * 1_000;
  let kills = 0;
  let killAt = performance.now() + KILL_EVERY;
  let answeredAtKill = 0;
  const ended = async (workflow = "soak") =>
    count(
      database,
      `lockstep_run WHERE workflow = '${workflow}' AND status NOT IN ('running', 'parked')`,
    );
  const place = async () => {
    const order = newOrder(orders.length);
    orders.push({ ...order, runId: order.orderId });
    await runtime.start(placeOrder, order);
    if (orders.length % CANCELLED > 0 || order.declined) return;
    cancels.push({ runId: order.orderId, at: performance.now() + CANCEL_WITHIN * Math.random() });
  };
  const cancelDue = async (now = performance.now()) => {
    const due = cancels.filter(({ at }) => at <= now);
    for (const one of due) {
      cancels.splice(cancels.indexOf(one), 1);
      await runtime.cancel(one.runId);
    }
  };
  const fillBasket = async () => {
    const basketId = `basket-${baskets.length}`;
    const basket = Array.from({ length: BASKET }, (_, i) => newOrder(orders.length + i));
    baskets.push(basketId);
    for (const order of basket) {
      orders.push({ ...order, runId: `${basketId}/orders[${order.orderId}]` });
    }
    await runtime.start(placeBasket, { basketId, orders: basket });
  };
  try {
    while (performance.now() < endAt || (kills < MIN_KILLS && performance.now() < endAt + LIMIT)) {
      const answered = await ended();
      await cancelDue();
      if (orders.length - answered < OPEN_RUNS) {
        await (orders.length % 3 === 0 ? fillBasket() : place());
      } else {
        await pause(20);
      }
      // Not before the last ones' successors have answered an order: on a busy machine, they take longer to start.
      if (performance.now() < killAt || answered <= answeredAtKill) continue;
      killAt = performance.now() + KILL_EVERY;
      answeredAtKill = answered;
      for (const at of await pickTwoWorkers(database, workers)) {
        workers[at]?.child.kill("SIGKILL");
        workers[at] = start();
        kills += 1;
      }
      onProgress(`${orders.length} orders, ${answered} answered, ${kills} processes killed`);
    }
    await cancelDue(Number.POSITIVE_INFINITY);
    await until(async () => (await ended()) === orders.length, LIMIT);
    await until(async () => (await ended("soak-basket")) === baskets.length, LIMIT);
  } finally {
    for (const { child } of workers) child.kill("SIGTERM");
  }
  const ends = await Promise.all(workers.map(({ finished }) => finished));
  const unclean = ends.flatMap(({ status, stderr }) =>
    status === 0 ? [] : [`a worker ended with ${status}: ${stderr}`],
  );
  const report = await judge(database, orders, stock);
  const wrong = await judgeBaskets(database, baskets, orders);
  const held = await listHeldLocks(locks);
  const faults = [
    ...report.faults,
    ...wrong,
    ...unclean,
    ...held.map((name) => `${name} is still locked`),
  ];
  return { ...report, baskets: baskets.length, kills, faults } satisfies SoakReport;
}

interface PlacedOrder extends SoakOrder {
  readonly runId: string;
}

function newOrder(number: number): SoakOrder {
  return {
    orderId: `order-${number}`,
    sku: `sku-${Math.floor(SKUS * Math.random() ** 2)}`,
    quantity: 1 + (number % 3),
    declined: number % 7 === 3,
  };
}

/** Picks two random workers that have executed a run: on a busy machine, others may still be starting. */
async function pickTwoWorkers(
  database: Database,
  workers: readonly Running[],
): Promise<readonly number[]> {
  const owners = await database.read(sql`SELECT DISTINCT owner FROM lockstep_run`);
  const pids = new Set(owners.map(({ owner }) => asText(owner).split(":").at(-1)));
  return [...workers.keys()]
    .filter((at) => pids.has(String(workers[at]?.child.pid)))
    .sort(() => Math.random() - 0.5)
    .slice(0, 2);
}

/** Returns the locks that are still held after all runs have ended and the locks of killed processes have expired. */
async function listHeldLocks(url: string): Promise<readonly string[]> {
  await using store = await open(url);
  const list = async () => (await store.locks.list()).map(({ name }) => name);
  await until(async () => (await list()).length === 0, 15_000).catch(() => {});
  return await list();
}

/** Compares the outputs of the baskets with the outcomes of their orders. */
async function judgeBaskets(
  database: Database,
  baskets: readonly string[],
  orders: readonly PlacedOrder[],
): Promise<readonly string[]> {
  const journal = sqlJournal(database);
  const wrong: string[] = [];
  for (const basketId of baskets) {
    const own = orders.filter(({ runId }) => runId.startsWith(`${basketId}/`));
    const runs = await Promise.all(own.map(({ runId }) => journal.find(runId)));
    const completed = runs.filter((run) => run?.status === "completed").length;
    const basket = await journal.show(basketId);
    const output = basket?.status === "completed" && decode(basket.ending?.value);
    if (output !== completed) wrong.push(`${basketId} answers ${output}, not ${completed}`);
  }
  return wrong;
}

/** Compares the outcomes of the runs with the tables. */
async function judge(database: Database, orders: readonly PlacedOrder[], supplied: number) {
  const faults: string[] = [];
  const expect = (what: string, actual: number, expected: number) => {
    if (actual !== expected) faults.push(`${what}: ${actual}, not ${expected}`);
  };
  const journal = sqlJournal(database);
  const runtime = createRuntime({ journal });
  const ends = { completed: 0, DECLINED: 0, SOLD_OUT: 0, RUN_CANCELLED: 0 };
  const sold = new Map<string, number>();
  let units = 0;
  const charges = await readCharges(database);
  for (const { orderId, runId, sku, quantity, declined } of orders) {
    const run = await journal.show(runId);
    const charge = charges.get(`${runId}/charge`);
    if (!run?.ending) {
      faults.push(`${orderId} was lost`);
    } else if (run.status === "completed") {
      ends.completed += 1;
      units += quantity;
      sold.set(sku, (sold.get(sku) ?? 0) + quantity);
      if (declined) faults.push(`${orderId} was declined but completed`);
      if (charge?.isRefunded !== false) faults.push(`${orderId} was completed but not charged`);
    } else {
      const { code } = decodeError(run.ending.value);
      const mayStand = code === "DECLINED";
      if (charge && !charge.isRefunded && !mayStand) faults.push(`${orderId} is still charged`);
      // A declined charge has no effect. Only that of a process that was killed during its attempt is refunded.
      const [started, ended] = [attemptKey("charge", "started", 1), "charge"].map((step) =>
        run.records.find(({ key }) => key === step),
      );
      if (charge?.isRefunded !== false && mayStand && started?.epoch === ended?.epoch) {
        faults.push(`${orderId} was declined, and refunded without need`);
      }
      if (code === "DECLINED" || code === "SOLD_OUT" || code === "RUN_CANCELLED") ends[code] += 1;
      else faults.push(`${orderId} failed with ${run.ending.value}`);
      const { compensated } = run.ending;
      if (compensated !== "yes") faults.push(`${orderId} was not undone, but ${compensated}`);
    }
  }
  const inventory = sqlInventory(database);
  for (let i = 0; i < SKUS; i += 1) {
    const stock = await inventory.get(`sku-${i}`);
    const left = supplied - (sold.get(`sku-${i}`) ?? 0);
    expect(`on hand of sku-${i}`, stock?.onHand ?? -1, left);
    if (left < 0) faults.push(`sku-${i} was oversold`);
    const booked = Object.values(await runtime.entity(soakLedger, `sku-${i}`).state());
    const units = booked.reduce((sum, one) => sum + one, 0);
    expect(`booked of sku-${i}`, units, sold.get(`sku-${i}`) ?? 0);
  }
  const [total] = await database.read(sql`SELECT orders, units FROM soak_total`);
  expect("orders recorded", asNumber(total?.orders), ends.completed);
  expect("units recorded", asNumber(total?.units), units);
  expect("orders noted", await count(database, "soak_done"), ends.completed);
  return {
    started: orders.length,
    completed: ends.completed,
    declined: ends.DECLINED,
    soldOut: ends.SOLD_OUT,
    cancelled: ends.RUN_CANCELLED,
    repeatedCharges: await count(database, "soak_charge WHERE calls > 1"),
    faults,
  };
}

/** Returns the charges by their idempotency keys. */
async function readCharges(database: Database) {
  const rows = await database.read(sql`SELECT id, refunded FROM soak_charge`);
  return new Map(
    rows.map(({ id, refunded }) => [asText(id), { isRefunded: asNumber(refunded) === 1 }]),
  );
}

async function count(database: Database, from: string): Promise<number> {
  const query = { texts: [`SELECT COUNT(*) AS rows_found FROM ${from}`], values: [] };
  const [row] = await database.read(query);
  return asNumber(row?.rows_found);
}
