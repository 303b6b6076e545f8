import {
  createBatchInventory,
  type HistoryPage,
  type StockPage,
} from "../../../inventory/backend.ts";
import type { InventoryOptions } from "../../../inventory/events.ts";
import type {
  Inventory,
  LedgerEntry,
  Reservation,
  StockLevel,
} from "../../../inventory/inventory.ts";
import { KeyedQueue } from "../../../lock/keyed-queue.ts";
import { checkOptionNames, type OptionNames } from "../../../lock/options.ts";
import { RecentMap } from "../../../lock/recent-map.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { type Etcd, type Get, get, type RangeAnswer } from "../client/etcd.ts";
import { checkPrefix } from "../client/names.ts";
import { applyBatch } from "./change.ts";
import { type CachedKey, type EtcdContext, reservationIn, skuIn, stockKeys } from "./context.ts";
import { expire } from "./expiry.ts";
import { claim } from "./fence.ts";
import { parseEntries, parseStock } from "./transaction.ts";

export interface EtcdInventoryOptions extends InventoryOptions {
  /** Prefix of all keys, so that several users can share a cluster: "" or a text that ends in "/". */
  readonly prefix?: string;
}

const INVENTORY_OPTIONS = {
  prefix: true,
  onEvent: true,
} satisfies OptionNames<EtcdInventoryOptions>;

/**
 * Creates an inventory in the keys of etcd 3.4 or later. The caller closes the client.
 *
 * The fence of an etcd lock is refused as soon as its lock is gone, even before the next holder has come; the lock
 * must be in the same cluster. Reservations last whole seconds, rounded up, and no less than the shortest lease
 * that etcd grants. `at` in the ledger is by the clock of the client, since etcd's clock cannot be read.
 */
export function etcdInventory(etcd: Etcd, options: EtcdInventoryOptions = {}): Inventory {
  checkOptionNames("etcdInventory", options, INVENTORY_OPTIONS);
  const { prefix = "", ...rest } = options;
  checkPrefix(prefix);
  const queue = new KeyedQueue(Number.POSITIVE_INFINITY);
  const context = { etcd, keys: stockKeys(prefix), cache: new RecentMap<CachedKey>(), queue };
  return createBatchInventory(
    {
      address: etcd.address,
      get: (sku) => readStock(context, sku),
      list: (page) => list(context, page),
      applyMany: (batch, signal) => applyBatch(context, batch, signal),
      expire: (sku) => expire(context, sku),
      history: (sku, page) => readHistory(context, sku, page),
      reservations: (sku, limit) => readReservations(context, sku, limit),
      claim: (fence) => claim(context, fence),
    },
    rest,
  );
}

/** Repeats a read over a new connection when an attempt has taken too long. */
function readAgain<T>(etcd: Etcd, once: (limit: AbortSignal) => Promise<T>): Promise<T> {
  return retryUntilKnown(etcd.address, "stock was read", undefined, once);
}

function range(etcd: Etcd, read: Get): Promise<RangeAnswer> {
  return readAgain(etcd, (limit) => etcd.range(read, limit));
}

async function readStock(
  { etcd, keys }: EtcdContext,
  sku: string,
): Promise<StockLevel | undefined> {
  const { kvs } = await range(etcd, get(keys.stock(sku)));
  if (!kvs[0]) return undefined;
  const { onHand, reserved, sold, supplied } = parseStock(kvs[0].value);
  return { sku, onHand, reserved, sold, supplied };
}

/** Goes from sku to sku: the ledger's keys between them are passed over by the server. */
async function list(
  context: EtcdContext,
  { prefix, after, limit }: StockPage,
): Promise<readonly StockLevel[]> {
  const { etcd, keys } = context;
  const levels: StockLevel[] = [];
  let last = after;
  while (levels.length < limit) {
    // The key of the stock is the last key of its sku.
    const from = last === "" ? {} : { after: keys.stock(last) };
    const { kvs } = await range(etcd, get({ prefix: keys.skus(prefix) }, { limit: 1, ...from }));
    if (!kvs[0]) break;
    last = skuIn(kvs[0].key);
    if (!last.startsWith(prefix)) {
      // `after` sorts before all skus with the prefix.
      last = "";
      continue;
    }
    const level = await readStock(context, last);
    if (level) levels.push(level);
  }
  return levels;
}

/** The keys per read of the ledger; each holds a chunk of the entries of one transaction. */
const PAGE = 100;

async function readHistory(
  { etcd, keys }: EtcdContext,
  sku: string,
  { limit, before }: HistoryPage,
): Promise<readonly LedgerEntry[]> {
  const entries: LedgerEntry[] = [];
  let after = keys.entries(sku, before);
  for (;;) {
    const { kvs } = await range(etcd, get({ prefix: keys.ledger(sku) }, { limit: PAGE, after }));
    const newestFirst = kvs.flatMap(({ value }) => parseEntries(value).toReversed());
    entries.push(...newestFirst.filter(({ seq }) => seq < before));
    if (entries.length >= limit || kvs.length < PAGE) return entries.slice(0, limit);
    after = kvs.at(-1)?.key ?? after;
  }
}

async function readReservations(
  { etcd, keys }: EtcdContext,
  sku: string,
  limit: number,
): Promise<readonly Reservation[]> {
  // A reservation has two keys until it expires, and one until its units are back on hand.
  const { kvs } = await range(etcd, get({ prefix: keys.reservations(sku) }, { limit: 2 * limit }));
  const leases = new Map(kvs.map(({ key, lease }) => [key, lease]));
  const units = kvs.map(({ key, value }) => ({ key, id: reservationIn(key), value }));
  const reserved = units.filter(({ key, id }) => key === keys.units(sku, id)).slice(0, limit);
  return Promise.all(
    reserved.map(async ({ id, value }) => {
      const lease = leases.get(keys.open(sku, id));
      const read = async (limit: AbortSignal) => (await etcd.timeToLive(lease ?? 0n, limit)) ?? 0;
      const left = lease === undefined ? 0 : await readAgain(etcd, read);
      return { id, quantity: Number(value), expiresIn: 1_000 * left };
    }),
  );
}
