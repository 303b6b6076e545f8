import {
  createBatchInventory,
  type HistoryPage,
  type StockPage,
} from "../../../inventory/backend.ts";
import type { InventoryOptions } from "../../../inventory/events.ts";
import type { LedgerEntry, Reservation, StockLevel } from "../../../inventory/inventory.ts";
import { KeyedQueue } from "../../../lock/keyed-queue.ts";
import { RecentMap } from "../../../lock/recent-map.ts";
import type { TransactionalInventory } from "../../transactional-inventory.ts";
import type { Dynamodb } from "../client/dynamodb.ts";
import type { Item } from "../client/items.ts";
import { itemTransaction } from "../client/transaction.ts";
import { applyBatch, GROUP_SIZES } from "./change.ts";
import { expire, toReservation } from "./expiry.ts";
import { claim } from "./fence.ts";
import { ledgerKey, levelOf, STOCK, stockKey, toEntries, toStock, UNITS } from "./items.ts";
import { within } from "./within.ts";

/** Creates an inventory in the items of a table. The caller closes the client. */
export function dynamodbInventory(
  dynamodb: Dynamodb,
  options: InventoryOptions = {},
): TransactionalInventory {
  const queue = new KeyedQueue(Number.POSITIVE_INFINITY);
  const context = { dynamodb, queue, cache: new RecentMap<ReturnType<typeof toStock>>() };
  const inventory = createBatchInventory(
    {
      address: dynamodb.address,
      groupSizes: GROUP_SIZES,
      async get(sku) {
        const item = await dynamodb.get(stockKey(sku));
        return item && toLevel(item);
      },
      list: (page) => list(dynamodb, page),
      applyMany: (batch, signal) => applyBatch(context, batch, signal),
      expire: (sku) => expire(context, sku),
      history: (sku, page) => readHistory(dynamodb, sku, page),
      reservations: (sku, limit) => readReservations(dynamodb, sku, limit),
      claim: (fence) => claim(dynamodb, fence),
    },
    options,
  );
  return { ...inventory, within: (tx) => within(context, itemTransaction(tx), options) };
}

function toLevel(item: Item): StockLevel | undefined {
  return levelOf(String(item.pk).slice(STOCK.length), toStock(item));
}

/** Reads the whole table: partitions have no order. */
async function list(
  dynamodb: Dynamodb,
  { prefix, after, limit }: StockPage,
): Promise<readonly StockLevel[]> {
  const filter = "begins_with(#pk, :start) AND #sk = :units";
  const found: StockLevel[] = [];
  const values = { start: STOCK + prefix, units: UNITS };
  for await (const items of dynamodb.scan({ filter, values })) {
    for (const item of items) found.push(toLevel(item) as StockLevel);
  }
  return found
    .filter(({ sku }) => sku > after)
    .sort((a, b) => (a.sku < b.sku ? -1 : 1))
    .slice(0, limit);
}

/** The items of a page of the ledger; each holds the entries of one transaction. */
const PAGE = 100;

async function readHistory(
  dynamodb: Dynamodb,
  sku: string,
  { limit, before }: HistoryPage,
): Promise<readonly LedgerEntry[]> {
  const { pk, sk: to } = ledgerKey(sku, before);
  const entries: LedgerEntry[] = [];
  const range = { pk, from: "ledger/", to, descending: true, limit: Math.min(limit + 1, PAGE) };
  for await (const { items } of dynamodb.query(range)) {
    entries.push(...items.flatMap(toEntries).filter(({ seq }) => seq < before));
    if (entries.length >= limit) break;
  }
  return entries.slice(0, limit);
}

async function readReservations(
  dynamodb: Dynamodb,
  sku: string,
  limit: number,
): Promise<readonly Reservation[]> {
  const found: Reservation[] = [];
  const range = { pk: STOCK + sku, from: "reservation/", to: "reservation/~", limit };
  for await (const { items, time } of dynamodb.query(range)) {
    for (const { id, quantity, expiresAt } of items.map(toReservation)) {
      found.push({ id, quantity, expiresIn: Math.max(0, expiresAt - time) });
    }
    if (found.length >= limit) break;
  }
  return found.slice(0, limit);
}
