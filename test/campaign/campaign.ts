import { setTimeout as sleep } from "node:timers/promises";
import { type Entry, type Inventory, stockLock } from "../../core/inventory/inventory.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { open } from "../../infra/open.ts";
import { until, within } from "../support/until.ts";
import { Crew } from "./crew.ts";
import { nemesisOf } from "./nemesis.ts";
import { Oracle } from "./oracle.ts";
import type { CampaignStore } from "./stores.ts";

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

  /** The fences at work: claims and writes of holders that a later holder had replaced. */
  readonly lateClaimsRefused: number;
  readonly lateWritesRefused: number;

  /** How many runs of `lockstep lock` have ended, by exit status or signal. */
  readonly commands: Counts;

  /** How many units each outcome was answered for. */
  readonly sales: Counts;

  /** How often each fault has happened. */
  readonly faults: Counts;

  /** Failed calls, by call and code. */
  readonly errors: Counts;

  /** Everything that contradicts a promise; empty when nothing does. */
  readonly violations: readonly string[];
}

const SKUS = ["cup", "plate", "pot"];
const NAMES = SKUS.map(stockLock);

/** Milliseconds: more than etcd and ZooKeeper grant at the least. */
const TTL = 2_000;

/** Units of each sku: more than can be sold. */
const UNITS = 1_000_000;

/** How long processes may take to end, and names to become free, once nothing is broken any more. */
const LIMIT = 60_000;

/** Runs contenders against a store while the nemesis breaks it, and judges what the oracle has seen. */
export async function campaign({
  store,
  seconds,
  seed,
  onProgress = () => {},
}: CampaignOptions): Promise<CampaignReport> {
  const oracle = await Oracle.open();
  const crew = new Crew({ url: store.url, oracle: oracle.url, skus: SKUS, ttl: TTL });
  const nemesis = nemesisOf(store, crew, { seed, ttl: TTL });
  try {
    await using opened = await open(store.url);
    for (const sku of SKUS) {
      await opened.inventory?.set({ sku, quantity: UNITS, operationId: `campaign-${sku}` });
    }
    crew.start();
    const over = new AbortController();
    const breaking = nemesis.run(over.signal);
    for (let second = 1; second <= seconds; second += 1) {
      await sleep(1_000);
      if (second % 10 === 0) onProgress(`${second} s: ${JSON.stringify(oracle.counts)}`);
    }
    over.abort();
    await breaking;
    const ends = await within(LIMIT, crew.end()).then(
      () => [],
      () => [`a process has not ended ${LIMIT} ms after it was told to`],
    );
    const violations = [
      ...ends,
      ...oracle.judge(),
      ...crew.violations,
      ...(await stillLocked(opened.locks)),
      ...(await soldWrongly(opened.inventory, crew.sales)),
    ];
    return {
      version: store.version,
      seed,
      seconds,
      ...oracle.counts,
      commands: crew.statuses,
      sales: countOf(crew.sales.values()),
      faults: nemesis.counts,
      errors: crew.errors,
      violations,
    };
  } finally {
    crew.kill();
    await oracle.close();
  }
}

/** Every name becomes free, whatever has happened to its holders and waiters. */
async function stillLocked(locks: LockStore): Promise<readonly string[]> {
  const held = async () => (await locks.list()).map(({ name }) => name);
  await until(async () => (await held()).length === 0, LIMIT).catch(() => {});
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

/** The ledger has each sale that was acknowledged once, none that was refused, and its fences never fall. */
async function soldWrongly(
  inventory: Inventory | undefined,
  sales: ReadonlyMap<string, string>,
): Promise<readonly string[]> {
  const violations: string[] = [];
  for (const sku of inventory ? SKUS : []) {
    const entries = (await ledgerOf(inventory as Inventory, sku)).filter(isSale);
    const sold = new Set(entries.map(({ operationId }) => operationId));
    const stock = await inventory?.get(sku);
    const problem = (what: string) => violations.push(`${sku}: ${what}`);
    if (sold.size < entries.length) problem("an operation id stands in the ledger twice");
    if (stock?.onHand !== UNITS - entries.length) {
      problem(`${entries.length} units were sold, and ${stock?.onHand} of ${UNITS} are left`);
    }
    for (const [sale, outcome] of sales) {
      const [of, operationId] = sale.split(" ");
      if (of !== sku) continue;
      if (outcome === "applied" && !sold.has(operationId)) problem(`${operationId} is lost`);
      if (outcome === "FENCED_OUT" && sold.has(operationId)) problem(`${operationId} was late`);
    }
    entries.forEach(({ fence = "" }, i) => {
      const before = entries[i - 1]?.fence ?? "";
      if (fence < before) problem(`a sale under ${fence} comes after one under ${before}`);
    });
  }
  return violations;
}

function isSale({ kind, outcome }: Entry): boolean {
  return kind === "decrement" && outcome === "applied";
}

/** Oldest first. */
async function ledgerOf(inventory: Inventory, sku: string): Promise<readonly Entry[]> {
  const entries: Entry[] = [];
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
