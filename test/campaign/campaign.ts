import type { WriteStream } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { type Inventory, type LedgerEntry, stockLock } from "../../core/inventory/inventory.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { type AnyStore, open } from "../../infra/open.ts";
import { NotInstalledError } from "../../infra/servers/binaries.ts";
import { byName, describe, type Replay, replay } from "../models/replay.ts";
import { Random } from "../simulation/random.ts";
import { type MeasuredCode, measuredCode } from "../support/commit.ts";
import { known } from "../support/known.ts";
import { until, within } from "../support/until.ts";
import { ClientClocks } from "./client-clocks.ts";
import { History, type HistoryEvent, now } from "./history.ts";
import { type CampaignViolation, judge, judgeStock, withoutExcused } from "./judge.ts";
import { createNemesis, FAULTS, type FaultCounts } from "./nemesis.ts";
import { Oracle } from "./oracle.ts";
import { saleRuns } from "./sale-workflow.ts";
import { databaseTime } from "./server-time.ts";
import type { CampaignStore } from "./stores.ts";
import { renderHistory } from "./trace.ts";
import { CONTENDERS, Workload } from "./workload.ts";

export interface CampaignOptions {
  readonly store: CampaignStore;
  readonly seconds: number;

  /** A campaign goes on until this many operations have ended. Default 0. */
  readonly operations?: number;

  /** How long such a campaign goes on at the most. Default an hour. */
  readonly mostSeconds?: number;
  readonly seed: number;

  /** Gets each event as a line of JSON. */
  readonly history?: WriteStream;
  readonly onProgress?: (line: string) => void;

  /** Gets the history of a failed campaign in the Trace Event Format. */
  readonly onFailure?: (trace: string) => void;
}

type Counts = Readonly<Record<string, number>>;

export interface CampaignReport extends MeasuredCode {
  /** Reports of earlier versions have that of their proof alone. */
  readonly date?: string;
  readonly version: string;
  readonly seed: number;
  readonly seconds: number;

  /** `unknown`: nothing was violated, and `gaps` says what was not tried. */
  readonly verdict: "passed" | "failed" | "unknown";
  readonly gaps: readonly string[];

  /** Broken guarantees; empty if none was broken. */
  readonly violations: readonly CampaignViolation[];

  /** Ended calls, where each unit of a sale counts, and those of them with an unknown outcome. */
  readonly operations: number;
  readonly unknown: number;

  /** Successful calls, by operation; those of sales in units. */
  readonly succeeded: Counts;

  /** Acquisitions whose holder still used a resource after another client had acquired the lock. */
  readonly overlaps: number;

  /** Uses of resources by late holders. */
  readonly lateRefused: number;
  readonly lateAccepted: number;

  /** Ended runs of `lockstep lock`, by exit status or signal. */
  readonly commands: Counts;

  /** Calls that did not succeed, by operation and code. */
  readonly errors: Counts;
  readonly faults: FaultCounts;

  /** How often a server had ended by itself, and was started again. Reports of earlier versions do not have it. */
  readonly serversEnded?: number;

  /** What was replayed as paths of the models, or why nothing was. Reports of earlier versions do not have it. */
  readonly replay?: ReplayCounts | { readonly not: string };
}

type ReplayCounts = Omit<Replay, "refusal">;

const SLOW_SKUS = ["cup", "plate", "pot"];
const FAST_SKUS = Array.from({ length: 32 }, (_, i) => `fast-${i}`);
const SKUS = [...SLOW_SKUS, ...FAST_SKUS];

/** The ttl of locks in milliseconds: above the minimum of etcd and ZooKeeper. */
const TTL = 2_000;

/** The stock of each sku: more than the contenders can sell. */
const UNITS = 1_000_000;

/** How long processes may take to end, and locks to expire, after the last fault, in milliseconds. */
const SETTLE_LIMIT = 60_000;

/** Fewer successful operations per second are too few for a verdict. */
const LEAST_OPERATIONS = 10;

/** A smaller part of successful operations is too small for a verdict: the store was not there. */
const LEAST_SUCCEEDED = 1 / 2;

/** The time between two inspections of a lock, in milliseconds. */
const INSPECT_EVERY = 20;

/** Runs contenders against a store while the nemesis injects faults, and returns the verdict on their history. */
export async function campaign({
  store,
  seconds: least,
  operations = 0,
  mostSeconds = 3_600,
  seed,
  history: file,
  onProgress = () => {},
  onFailure = () => {},
}: CampaignOptions): Promise<CampaignReport> {
  const [date, code] = [new Date().toISOString().slice(0, 10), measuredCode()];
  const history = new History(file);
  await using oracle = await Oracle.open();
  await using clocks = await ClientClocks.open(store, {
    ...{ count: CONTENDERS, span: 2 * TTL },
    ...{ history, onProgress },
  });
  await using opened = await open(store.directUrl);
  const workload = new Workload({
    ...{ url: store.url, oracle: oracle.url, history, seed, ttl: TTL },
    ...{ slowSkus: SLOW_SKUS, fastSkus: FAST_SKUS, env: clocks.env },
    hasStock: opened.has("inventory"),
  });
  const nemesis = createNemesis({
    ...store,
    ...{ history, ttl: TTL, random: new Random(seed) },
    ...{ contenders: workload.contenders, commands: workload.commands },
    faults: { ...store.faults, "client's clock stepped": clocks.fault },
  });
  const inventory = opened.has("inventory") ? opened.inventory : undefined;
  for (const sku of inventory ? SKUS : []) {
    await inventory?.set({ sku, quantity: UNITS, operationId: `campaign-${sku}` });
    history.addNow({ ...observed(sku, "supply"), value: UNITS });
  }
  try {
    workload.start();
    // Processes take long to start on a busy machine.
    await until(() => history.operations > 0);
    const ended = new AbortController();
    const injecting = nemesis.run(ended.signal);
    const inspecting = inspectAll({ opened, store, history }, ended.signal);
    const isOver = () =>
      seconds >= least && (history.operations >= operations || seconds >= mostSeconds);
    let seconds = 0;
    while (!isOver()) {
      await sleep(1_000);
      seconds += 1;
      if (seconds % 10 === 0) onProgress(`${seconds} s: ${history.operations} operations`);
    }
    ended.abort();
    await Promise.all([injecting, inspecting]);
    const hanging = await within(SETTLE_LIMIT, workload.end()).then(
      () => [],
      () => [`expected ends: a process did not end within ${SETTLE_LIMIT} ms` as const],
    );
    const unfinished = await finishRuns(opened, history);
    const { violations, ...judged } = judge(history.events);
    const stock = inventory ? await checkStock(inventory, history) : [];
    const { refusals, ...replayed } = await replayAll(history.events);
    const report = {
      ...{ date, ...code, version: store.version },
      ...{ seed, seconds },
      violations: [
        ...hanging,
        ...unfinished,
        ...violations,
        ...oracle.violations,
        ...workload.violations,
        ...(await stillLocked(opened.locks)),
        ...stock,
        ...refusals,
      ],
      operations: history.operations,
      unknown: history.unknown,
      ...judged,
      ...countEnds(history.events),
      commands: workload.statuses,
      faults: nemesis.counts,
      serversEnded: nemesis.serversEnded,
      ...replayed,
    };
    const judgement = verdictOf(report);
    if (judgement.verdict === "failed") onFailure(renderHistory(history.events, report.violations));
    return { ...judgement, ...report };
  } finally {
    workload.kill();
  }
}

/** Judges what a campaign has tried. */
export function verdictOf({
  violations,
  seconds,
  operations,
  succeeded,
  overlaps,
  faults,
  replay: replayed = { not: "no event was replayed" },
}: Pick<
  CampaignReport,
  "violations" | "seconds" | "operations" | "succeeded" | "overlaps" | "faults" | "replay"
>): Pick<CampaignReport, "verdict" | "gaps"> {
  const missed = FAULTS.filter((name) => {
    const count = faults[name];
    return "met" in count && count.met === 0;
  });
  const successful = Object.values(succeeded).reduce((sum, count) => sum + count, 0);
  const isTooFew = successful < Math.max(LEAST_OPERATIONS * seconds, LEAST_SUCCEEDED * operations);
  const gaps = [
    ...(isTooFew ? [`only ${successful} of ${operations} operations succeeded`] : []),
    ...(overlaps === 0 ? ["no holder was late"] : []),
    ...missed.map((name) => `no ${name}`),
    ...("not" in replayed ? [replayed.not] : []),
  ];
  if (violations.length > 0) return { verdict: "failed", gaps };
  return { verdict: gaps.length > 0 ? "unknown" : "passed", gaps };
}

/** Replays the history as paths of the models. */
async function replayAll(
  events: readonly HistoryEvent[],
): Promise<
  Required<Pick<CampaignReport, "replay">> & { readonly refusals: readonly CampaignViolation[] }
> {
  try {
    const { refusal, ...counts } = await replay(byName(withoutExcused(events)));
    return { replay: counts, refusals: refusal ? [`model path: ${describe(refusal)}`] : [] };
  } catch (error) {
    if (!(error instanceof NotInstalledError)) throw error;
    return { replay: { not: `no event was replayed: ${error.message}` }, refusals: [] };
  }
}

/** What the campaign itself sees or does to the stock of a sku. */
function observed(sku: string, operation: "supply" | "read-stock") {
  return { client: "observer", operation, type: "ok", name: stockLock(sku) } as const;
}

interface Observed {
  readonly opened: AnyStore;
  readonly store: CampaignStore;
  readonly history: History;
}

/** Records who has the locks by the store's own account and clock, until the signal aborts. */
async function inspectAll(
  { opened, store, history }: Observed,
  signal: AbortSignal,
): Promise<void> {
  const readClock = async () =>
    opened.has("database") ? databaseTime(opened.database) : store.serverTime?.();
  while (!signal.aborted) {
    for (const name of SLOW_SKUS.map(stockLock)) {
      // A server may be down.
      const info = await opened.locks.inspect(name).catch(() => undefined);
      // Without a holder, the last fence may be that of a claim which was not granted.
      if (info?.holder === undefined || info.fence === undefined) continue;
      const event = { client: "observer", operation: "inspect", type: "ok", name } as const;
      const time = now();
      const serverTime = await readClock().catch(() => undefined);
      history.add({ ...event, time, token: info.fence, ...(serverTime && { serverTime }) });
    }
    await sleep(INSPECT_EVERY);
  }
}

/** Completes the runs whose processes did not. */
async function finishRuns(
  opened: AnyStore,
  history: History,
): Promise<readonly CampaignViolation[]> {
  const sell = saleRuns(opened, {
    ttl: TTL,
    client: "observer.journal",
    record: (event) => history.addNow(event),
  });
  const runs = history.events.filter(({ operation }) => operation === "run");
  const completed = new Set(runs.filter(({ type }) => type === "ok").map(({ id }) => id));
  const violations: CampaignViolation[] = [];
  const signal = AbortSignal.timeout(SETTLE_LIMIT);
  for (const { type, id = "", name = "" } of runs) {
    if (type !== "invoke" || completed.has(id)) continue;
    const sale = { id, sku: name.slice(stockLock("").length) };
    const run = { client: "observer", operation: "run", name, id };
    history.addNow({ ...run, type: "invoke" });
    const isCompleted = await sell?.(sale, signal).catch(() => false);
    history.addNow({ ...run, type: isCompleted ? "ok" : "unknown" });
    if (!isCompleted) violations.push(`once per transaction: ${id} does not complete`);
  }
  return violations;
}

/**
 * Checks that every lock becomes free after all faults of its holders and waiters. Looks at each lock: where a list reads
 * the whole store, DynamoDB Local does not come to its end after as many operations, and answers nobody else meanwhile.
 */
async function stillLocked(locks: LockStore): Promise<readonly CampaignViolation[]> {
  const names = SKUS.map(stockLock);
  let held: readonly string[] = names;
  const areFree = async () => {
    const infos = await Promise.all(names.map((name) => locks.inspect(name)));
    held = infos.filter(({ holder }) => holder !== undefined).map(({ name }) => name);
    return held.length === 0;
  };
  // A store under load may take longer to answer than the client waits.
  await until(() => areFree().catch(() => false), SETTLE_LIMIT).catch(() => {});
  const taken = await Promise.all(
    names.map(async (name) => {
      const taking = locks.withLock(name, { ttl: TTL, wait: TTL }, async () => undefined);
      const error = await taking.catch((reason: Error) => reason);
      return error ? [`${name}: ${error.message}`] : [];
    }),
  );
  const still = held.map((name) => `${name} is still locked`);
  return [...still, ...taken.flat()].map((problem) => `free at the end: ${problem}` as const);
}

async function checkStock(
  inventory: Inventory,
  history: History,
): Promise<readonly CampaignViolation[]> {
  const calls = history.events.filter(({ id }) => id !== undefined);
  const byName = Map.groupBy(calls, ({ name = "" }) => name);
  const violations: CampaignViolation[] = [];
  for (const sku of SKUS) {
    // The last fault may have ended just now.
    const entries = (await known(() => ledgerOf(inventory, sku))).filter(isSale);
    const onHand = (await known(() => inventory.get(sku)))?.onHand;
    if (onHand !== undefined) history.addNow({ ...observed(sku, "read-stock"), value: onHand });
    const stock = { sku, supplied: UNITS, onHand, entries };
    violations.push(...judgeStock(stock, byName.get(stockLock(sku)) ?? []));
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

function countEnds(events: readonly HistoryEvent[]): Pick<CampaignReport, "succeeded" | "errors"> {
  const succeeded: Record<string, number> = {};
  const errors: Record<string, number> = {};
  for (const { client, type, operation, code, units = 1 } of events) {
    if (type === "invoke" || client === "nemesis" || client.startsWith("observer")) continue;
    const counts = type === "ok" ? succeeded : errors;
    const key = type === "ok" ? operation : `${operation}: ${code}`;
    counts[key] = (counts[key] ?? 0) + units;
  }
  return { succeeded, errors };
}
