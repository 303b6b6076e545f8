/** Sells one hot sku, for `sellers.ts`: for as long as each message says, in the way that it names. */

import { randomUUID } from "node:crypto";
import { sum } from "simple-statistics";
import { openFence } from "../../../core/lock/fence.ts";
import { sqlInventory } from "../../../core/stores/sql/inventory/index.ts";
import { fulfil } from "../../../functions/batch/fulfil.ts";
import { type AnyStore, open } from "../../../infra/open.ts";
import { type Repeated, repeat } from "../measure.ts";
import { rawSql } from "../raw-sql.ts";
import { BATCH, type Sale, SECRET, SELL_ONE, SKU } from "./sales.ts";

const [url = "", sealed = ""] = process.argv.slice(2);
const fence = await openFence(sealed, SECRET);
const raw = await rawSql(url);
const { database, locks }: AnyStore = await open(url);
const inventory = sqlInventory(database);

async function repeated(contender: Omit<Repeated, "name">, millis: number): Promise<number> {
  return sum((await repeat({ name: "", ...contender }, millis)).shares);
}

/** Each resolves to the number of orders that were sold. */
const WAYS: Readonly<Record<Sale["way"], (millis: number) => Promise<number>>> = {
  plain: (millis) => repeated({ run: () => raw.query(SELL_ONE) }, millis),

  decrementMany(millis) {
    const order = () => ({ operationId: randomUUID(), quantity: 1 });
    const run = () =>
      inventory.decrementMany({ sku: SKU, fence, orders: Array.from({ length: BATCH }, order) });
    return repeated({ batch: BATCH, run }, millis);
  },

  async fulfil(millis) {
    const signal = AbortSignal.timeout(millis);
    return (await fulfil({ database, inventory, locks, follow: true, signal })).fulfilled;
  },
};

process.on("message", async ({ way, millis }: Sale) => {
  process.send?.(await WAYS[way](millis));
});
process.on("disconnect", () => process.exit());
process.send?.("ready");
