import { describe, test } from "vitest";
import type { Worker, WorkerConfig } from "../../functions/oversell/messages.ts";
import { OrderHandler } from "../../functions/oversell/order-handler.ts";
import { timesOfService } from "../../functions/oversell/oversell.ts";
import { judge } from "../../functions/oversell/report.ts";
import { runSale } from "../../functions/oversell/sale.ts";
import { scheduleDeliveries } from "../../functions/oversell/schedule.ts";
import { STRATEGIES, type Strategy } from "../../functions/oversell/strategy.ts";
import { type AnyStore, open } from "../../infra/open.ts";
import { temporaryFile } from "../support/under-test.ts";

const SEEDS = Array.from({ length: 20 }, (_, seed) => seed);

/** A worker in the process of the test: the story has no freezes and no kills. */
function localWorker(opened: AnyStore): Worker {
  let handler: OrderHandler | undefined;
  return {
    async configure(config: WorkerConfig) {
      handler = new OrderHandler(opened, config, async (fault) => {
        throw new Error(`the story has no ${fault}`);
      });
    },
    handle(delivery, startedAt) {
      if (!handler) throw new Error("the worker is not configured");
      return handler.handle(delivery, startedAt);
    },
    stop() {},
  };
}

/** Sells 4 units to 12 buyers while the identity service is overloaded, without any other fault. */
async function sell(opened: AnyStore, name: string, seed: number) {
  const ttlMillis = 200;
  const faults = { slow: 0, freeze: 0, "kill-before": 0, "kill-after": 0 };
  const demand = { stock: 4, buyers: 12, seed, faults, duplicates: 0 };
  const sale = {
    ...timesOfService({ isOverloaded: true, seed }, ttlMillis),
    ...{
      opened,
      lockedBy: opened,
      store: opened.url,
      locks: undefined,
      stock: 4,
      ttlMillis,
      pauseMillis: 0,
    },
    workers: Array.from({ length: 4 }, () => localWorker(opened)),
    deliveries: scheduleDeliveries(demand),
    onProgress() {},
  };
  const strategy = STRATEGIES.find((one) => one.name === name) as Strategy;
  return judge(await runSale(sale, strategy));
}

/** Sells once with each seed, all at the same time. */
async function sellWithEachSeed(
  strategy: string,
  onTestFinished: (cleanUp: () => Promise<void>) => void,
) {
  const { file, remove } = await temporaryFile();
  const url: string = `sqlite:${file}`;
  const opened = await open(url);
  onTestFinished(async () => {
    await opened.close();
    await remove();
  });
  return Promise.all(SEEDS.map((seed) => sell(opened, strategy, seed)));
}

describe.concurrent("a slow service under a lock that expires", { timeout: 240_000 }, () => {
  test("oversells in 20 of 20 seeds, without any other fault", async ({
    onTestFinished,
    expect,
  }) => {
    const reports = await sellWithEachSeed("as-in-the-incident", onTestFinished);
    expect(reports.filter(({ oversold }) => oversold > 0)).toHaveLength(SEEDS.length);
    for (const { overlaps } of reports) expect(overlaps).toBeGreaterThan(0);
  });

  test("oversells in none of 20 seeds with Lockstep", async ({ onTestFinished, expect }) => {
    const reports = await sellWithEachSeed("lockstep", onTestFinished);
    for (const report of reports) expect(report).toMatchObject({ sold: 4, oversold: 0, lost: 0 });
  });
});
