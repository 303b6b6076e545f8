import { checkSpan, checkWhole } from "../../core/lock/checks.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { open } from "../../infra/open.ts";
import type { Fault } from "./messages.ts";
import type { Observations } from "./observations.ts";
import { shortestTtl } from "./open-shop.ts";
import { judge, type StrategyReport } from "./report.ts";
import { persist, runSale, type SaleOptions, type SaleProgress } from "./sale.ts";
import { scheduleAnswers, scheduleDeliveries } from "./schedule.ts";
import { checkStrategy, type Strategy } from "./strategy.ts";
import { WorkerProcess } from "./worker-process.ts";

export interface OversellOptions {
  readonly store: string;

  /** The store of the locks. Default: the store itself. */
  readonly locks?: string | undefined;
  readonly strategies: readonly Strategy[];
  readonly stock: number;
  readonly buyers: number;
  readonly workers: number;
  readonly seed: number;

  /** The lock's ttl, 10 s in the incident. Default: 150, or the minimum of the store. */
  readonly ttlMillis: number | undefined;

  /** How long a slow call takes and a frozen process stays frozen, 30 s in the incident. Default: 3 ttls. */
  readonly pauseMillis: number | undefined;
  readonly faults: Readonly<Record<Fault, number>>;
  readonly duplicates: number;

  /** Whether the identity service and the handling of orders are overloaded, as in the incident. */
  readonly isOverloaded?: boolean;
  readonly onProgress?: (strategy: Strategy, progress: SaleProgress) => void;
  readonly onObservations?: (observations: Observations) => void;
}

export interface OversellReport {
  readonly store: string;

  /** The store of the locks, if it is another one. */
  readonly locks?: string;
  readonly stock: number;
  readonly buyers: number;
  readonly workers: number;
  readonly seed: number;
  readonly strategies: readonly StrategyReport[];
}

/** Replays the incident on a store with each strategy in turn, in real processes. */
export async function oversell(options: OversellOptions): Promise<OversellReport> {
  check(options);
  const { strategies, stock, buyers, workers: count, seed } = options;
  await using opened = await open(options.store);
  await using other = options.locks === undefined ? undefined : await open(options.locks);
  const lockedBy = other ?? opened;
  const workers = Array.from({ length: count }, () => new WorkerProcess());
  try {
    if (options.ttlMillis !== undefined && strategies.some(({ lock }) => lock === "lockstep")) {
      checkSpan("ttl", options.ttlMillis, lockedBy.locks.traits.minTtl);
    }
    for (const each of new Set([opened, lockedBy])) {
      if (each.has("database")) await persist(() => migrate(each.database));
    }
    const reports: StrategyReport[] = [];
    for (const strategy of strategies) {
      const { ttlMillis = Math.max(150, shortestTtl(lockedBy, strategy)) } = options;
      const { pauseMillis = 3 * ttlMillis } = options;
      const times = { ttlMillis, pauseMillis, ...timesOfService(options, ttlMillis) };
      const deliveries = scheduleDeliveries(options);
      const onProgress = (progress: SaleProgress) => options.onProgress?.(strategy, progress);
      const sale = {
        ...{ ...options, ...times, locks: options.locks },
        ...{ opened, lockedBy, workers, deliveries, onProgress },
      };
      const observations = await runSale(sale, strategy);
      options.onObservations?.(observations);
      reports.push(judge(observations));
    }
    const stores = { store: opened.url, ...(other && { locks: other.url }) };
    return { ...stores, stock, buyers, workers: count, seed, strategies: reports };
  } finally {
    for (const worker of workers) worker.stop();
  }
}

/** Returns the times of the identity service and of an order. An order takes a tenth of the ttl if all is overloaded. */
export function timesOfService(
  { isOverloaded = false, seed }: Pick<OversellOptions, "isOverloaded" | "seed">,
  ttlMillis: number,
): Pick<SaleOptions, "workMillis" | "answersAt"> {
  return isOverloaded
    ? { workMillis: ttlMillis / 10, answersAt: scheduleAnswers(seed, ttlMillis) }
    : { workMillis: 1, answersAt: [] };
}

function check({ strategies, faults, ...options }: OversellOptions): void {
  for (const strategy of strategies) checkStrategy(strategy, options);
  checkWhole("stock", options.stock, 1, 100_000);
  checkWhole("buyers", options.buyers, 1, 100_000);
  checkWhole("workers", options.workers, 1, 64);
  checkWhole("seed", options.seed, 0, 2 ** 31 - 1);
  checkWhole("duplicates", options.duplicates, 0, options.buyers);
  for (const [fault, times] of Object.entries(faults)) checkWhole(fault, times, 0, options.stock);
  if (options.ttlMillis !== undefined) checkSpan("ttl", options.ttlMillis, 1);
  if (options.pauseMillis !== undefined) checkSpan("pause", options.pauseMillis, 0);
}
