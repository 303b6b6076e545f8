import { setTimeout as sleep } from "node:timers/promises";
import { type Inventory, type LedgerEntry, stockLock } from "../../core/inventory/inventory.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { open } from "../../infra/open.ts";
import { until, within } from "../support/until.ts";
import { createNemesis } from "./nemesis.ts";
import { Oracle } from "./oracle.ts";
import type { CampaignStore } from "./stores.ts";
import { Workload } from "./workload.ts";

export interface CampaignOptions {
  readonly store: CampaignStore;
  readonly seconds: number;
  readonly seed: number;
  readonly onProgress?: (line: string) => void;
}

type Counts = Readonly<Record<string, number>>;

export interface CampaignReport {
  readonly version: string;
  readonly seed: number;
  readonly seconds: number;
  readonly acquisitions: number;
  readonly writesApplied: number;

  /** Claims and writes that fences refused because a later holder had claimed the resource. */
  readonly lateClaimsRefused: number;
  readonly lateWritesRefused: number;

  /** Ended runs of `lockstep lock`, by exit status or signal. */
  readonly commands: Counts;

  /** Sales, by outcome. */
  readonly sales: Counts;

  /** Injected faults, by name. */
  readonly faults: Counts;

  /** Failed calls, by call and code. */
  readonly errors: Counts;

  /** Broken guarantees; empty if none was broken. */
  readonly violations: readonly string[];
}

const SKUS = ["cup", "plate", "pot"];
const NAMES = SKUS.map(stockLock);

/** The ttl of locks in milliseconds: above the minimum of etcd and ZooKeeper. */
const TTL = 2_000;

/** The stock of each sku: more than the contenders can sell. */
const UNITS = 1_000_000;

/** How long processes may take to end, and locks to expire, after the last fault, in milliseconds. */
const SETTLE_LIMIT = 60_000;

/** Runs contenders against a store while the nemesis injects faults, and returns the oracle's verdict. */
export async function campaign({
  store,
  seconds,
  seed,
  onProgress = () => {},
}: CampaignOptions): Promise<CampaignReport> {
  const oracle = await Oracle.open();
  const workload = new Workload({ url: store.url, oracle: oracle.url, skus: SKUS, ttl: TTL });
  const nemesis = createNemesis(store, workload, { seed, ttl: TTL });
  try {
    await using opened = await open(store.url);
    const inventory = opened.has("inventory") ? opened.inventory : undefined;
    for (const sku of SKUS) {
      await inventory?.set({ sku, quantity: UNITS, operationId: `campaign-${sku}` });
    }
    workload.start();
    // Processes take long to start on a busy machine.
    await until(() => oracle.counts.writesApplied > 0);
    const ended = new AbortController();
    const injecting = nemesis.run(ended.signal);
    for (let second = 1; second <= seconds; second += 1) {
      await sleep(1_000);
      if (second % 10 === 0) onProgress(`${second} s: ${JSON.stringify(oracle.counts)}`);
    }
    ended.abort();
    await injecting;
    const hanging = await within(SETTLE_LIMIT, workload.end()).then(
      () => [],
      () => [`a process did not end within ${SETTLE_LIMIT} ms`],
    );
    const violations = [
      ...hanging,
      ...oracle.judge(),
      ...workload.violations,
      ...(await stillLocked(opened.locks)),
      ...(await checkLedger(inventory, workload.sales)),
    ];
    return {
      version: store.version,
      seed,
      seconds,
      ...oracle.counts,
      commands: workload.statuses,
      sales: countOf(workload.sales.values()),
      faults: nemesis.counts,
      errors: workload.errors,
      violations,
    };
  } finally {
    workload.kill();
    await oracle.close();
  }
}

/** Checks that every lock becomes free after all faults of its holders and waiters. */
async function stillLocked(locks: LockStore): Promise<readonly string[]> {
  const held = async () => (await locks.list()).map(({ name }) => name);
  await until(async () => (await held()).length === 0, SETTLE_LIMIT).catch(() => {});
  const names = await held();
  const taken = await Promise.all(
    NAMES.map(async (name) => {
      const lock = await locks.lock(name, { ttl: TTL, wait: TTL }).catch(() => undefined);
      await lock?.unlock();
      return lock ? [] : [name];
    }),
  );
  return [...new Set([...names, ...taken.flat()])].map((name) => `${name} is still locked`);
}

/** Checks that the ledger has every acknowledged sale once and no refused sale, and that its fences never fall. */
async function checkLedger(
  inventory: Inventory | undefined,
  sales: ReadonlyMap<string, string>,
): Promise<readonly string[]> {
  const violations: string[] = [];
  for (const sku of inventory ? SKUS : []) {
    const entries = (await ledgerOf(inventory as Inventory, sku)).filter(isSale);
    const sold = new Set(entries.map(({ operationId }) => operationId));
    const stock = await inventory?.get(sku);
    const violate = (text: string) => violations.push(`${sku}: ${text}`);
    if (sold.size < entries.length) violate("the ledger has an operation id twice");
    if (stock?.onHand !== UNITS - entries.length) {
      violate(`${entries.length} units were sold, and ${stock?.onHand} of ${UNITS} are left`);
    }
    for (const [sale, outcome] of sales) {
      const [of, operationId] = sale.split(" ");
      if (of !== sku) continue;
      if (outcome === "applied" && !sold.has(operationId))
        violate(`the sale ${operationId} is lost`);
      if (outcome === "FENCED_OUT" && sold.has(operationId))
        violate(`the refused sale ${operationId} is in the ledger`);
    }
    entries.forEach(({ fence = "" }, i) => {
      const before = entries[i - 1]?.fence ?? "";
      if (fence < before) violate(`a sale under ${fence} comes after one under ${before}`);
    });
  }
  return violations;
}

function isSale({ kind, outcome }: LedgerEntry): boolean {
  return kind === "decrement" && outcome === "applied";
}

/** Reads the ledger of a sku, oldest entry first. */
async function ledgerOf(inventory: Inventory, sku: string): Promise<readonly LedgerEntry[]> {
  const entries: LedgerEntry[] = [];
  for (let before = Number.MAX_SAFE_INTEGER; ; ) {
    const page = await inventory.history(sku, { limit: 1_000, before });
    entries.push(...page);
    if (page.length < 1_000) return entries.toReversed();
    before = page.at(-1)?.seq ?? 0;
  }
}

function countOf(outcomes: Iterable<string>): Counts {
  const groups = Map.groupBy(outcomes, (outcome) => outcome);
  return Object.fromEntries([...groups].map(([outcome, { length }]) => [outcome, length]));
}
