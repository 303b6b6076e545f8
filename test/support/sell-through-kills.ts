import { expect } from "vitest";
import type { Inventory } from "../../core/inventory/inventory.ts";
import { readLedger } from "../../functions/oversell/ledger.ts";
import type { Server } from "../../infra/servers/server.ts";
import { until } from "./until.ts";

const SUPPLY = 1_000_000;

const SELLERS = 32;

/** Kills and restarts the server while clients sell; expects every acknowledged sale in the ledger, once. */
export async function sellThroughKills(
  { nodes: [node] }: Server,
  stocks: readonly [Inventory, ...Inventory[]],
): Promise<void> {
  const sku = "a";
  const [first] = stocks;
  await first.set({ sku, quantity: SUPPLY, operationId: "set" });
  const acknowledged = new Set<string>();
  let over = false;
  const sell = async (stock: Inventory, operationId: string) => {
    await until(async () => {
      const answer = await stock
        .decrement({ sku, quantity: 1, operationId })
        .catch((error) => void expect(error.retryable).toBe(true));
      return answer?.outcome === "applied";
    });
    acknowledged.add(operationId);
  };
  const sellers = Array.from({ length: SELLERS }, async (_, number) => {
    const stock = stocks[number % stocks.length] ?? first;
    for (let i = 0; !over; i += 1) await sell(stock, `${number}/${i}`);
  });
  for (let kill = 0; kill < 3; kill += 1) {
    const before = acknowledged.size;
    await until(() => acknowledged.size > before + 100);
    await node?.kill("SIGKILL");
    await node?.start();
  }
  over = true;
  await Promise.all(sellers);
  const entries = await readLedger(first, sku);
  const sold = entries.flatMap(({ kind, operationId }) =>
    kind === "decrement" && operationId !== undefined ? operationId : [],
  );
  expect(sold.toSorted()).toEqual([...acknowledged].sort());
  expect(await first.get(sku)).toMatchObject({ sold: sold.length, onHand: SUPPLY - sold.length });
}
