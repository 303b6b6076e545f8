import {
  createBatchInventory,
  type HistoryPage,
  type InventoryBackend,
  type StockPage,
} from "../../../inventory/backend.ts";
import type { InventoryOptions } from "../../../inventory/events.ts";
import type {
  Inventory,
  LedgerEntry,
  LedgerEntryKind,
  Reservation,
  StockLevel,
  StockOutcome,
} from "../../../inventory/inventory.ts";
import type { Duration } from "../../../lock/duration.ts";
import { quote } from "../../../lock/errors.ts";
import { checkPrefix, nameOf, PREFIX, patternOf } from "../client/names.ts";
import type { Redis } from "../client/redis.ts";
import { replicatedWrites } from "../client/replicas.ts";
import { scan } from "../client/scan.ts";
import { applyBatch, claim, type RedisContext, runUntilKnown, stockKeys } from "./change.ts";
import { EXPIRE, MAX_RELEASED, READ_LEDGER, READ_RESERVATIONS } from "./scripts.ts";

export interface RedisInventoryOptions extends InventoryOptions {
  /**
   * Prefix of all keys, in braces; it may equal the prefix of the locks. Default "lockstep".
   *
   * In a cluster all keys with one prefix are in one slot, and so on one master.
   */
  readonly prefix?: string;

  /**
   * The number of replicas that must confirm a change in time. Otherwise the call rejects with an UnknownOutcomeError;
   * a second call with the same id tells the outcome. That a sku or a reservation does not exist must be confirmed, too:
   * an old master may have restarted empty. Default 0.
   *
   * Replicas make the loss of a sale in a failover less likely, but do not rule it out: a replica that has not
   * confirmed may be promoted all the same. While a change waits for replicas, all other requests of this client wait.
   */
  readonly replicas?: number;

  /**
   * The longest wait for the replicas, in milliseconds or as a text such as "1s", and no longer than half the client's
   * timeout. Default 1,000.
   */
  readonly replicaTimeout?: Duration;
}

/**
 * Creates an inventory in Redis 7 or later, in keys that never expire. The caller closes the client.
 *
 * Stock is as durable as the server's data. A crash loses acknowledged sales and claims unless the server runs with
 * `appendfsync always`, and so does the promotion of a replica that lacks them; the units are then sold again, and a
 * late holder may pass until the next holder comes. Stock that must survive a failover belongs in a database. The
 * server's eviction policy must spare keys without an expiry. A batch of 1,000 orders takes the server about 10 ms,
 * during which it serves nothing else.
 */
export function redisInventory(redis: Redis, options: RedisInventoryOptions = {}): Inventory {
  return createBatchInventory(redisStock(redis, options), options);
}

export function redisStock(
  redis: Redis,
  options: Omit<RedisInventoryOptions, keyof InventoryOptions>,
): Omit<InventoryBackend, "apply"> {
  const { prefix = PREFIX } = options;
  checkPrefix(prefix);
  const context = { redis, keys: stockKeys(prefix), replicated: replicatedWrites(redis, options) };
  return {
    address: redis.address,
    get: (sku) => readStock(context, sku),
    list: (page) => list(context, prefix, page),
    applyMany: (batch, signal) => applyBatch(context, batch, signal),
    expire: (sku) => expire(context, sku),
    history: (sku, page) => readHistory(context, sku, page),
    reservations: (sku, limit) => readReservations(context, sku, limit),
    claim: (fence) => claim(context, fence),
  };
}

async function readStock(
  { redis, keys }: RedisContext,
  sku: string,
): Promise<StockLevel | undefined> {
  const fields = ["onHand", "reserved", "sold", "supplied"] as const;
  const found = await redis.call(["HMGET", keys.stock(sku), ...fields], { reads: true });
  const [onHand, reserved, sold, supplied] = found as readonly (string | undefined)[];
  if (onHand === undefined) return undefined;
  return {
    sku,
    onHand: Number(onHand),
    reserved: Number(reserved),
    sold: Number(sold),
    supplied: Number(supplied),
  };
}

/** Walks all keys of the database: Redis keeps no order of keys. */
async function list(
  context: RedisContext,
  keyPrefix: string,
  { prefix, after, limit }: StockPage,
): Promise<readonly StockLevel[]> {
  const skus = new Set<string>();
  const pattern = patternOf(keyPrefix, "stock", prefix);
  for await (const keys of scan(context.redis, keyPrefix, pattern)) {
    for (const key of keys) skus.add(nameOf(keyPrefix, "stock", key));
  }
  const page = [...skus]
    .filter((sku) => sku > after)
    .sort()
    .slice(0, limit);
  const levels = await Promise.all(page.map((sku) => readStock(context, sku)));
  return levels.filter((level) => level !== undefined);
}

/** Releases all expired reservations of the sku. */
async function expire(context: RedisContext, sku: string): Promise<void> {
  const { keys } = context;
  const input = { keys: [keys.stock(sku), keys.reservations(sku), keys.ledger(sku)] };
  const what = `the expired reservations of ${quote(sku)} were put back`;
  let count: string | undefined;
  do [, count] = await runUntilKnown(context, { what, script: EXPIRE, input });
  while (Number(count) === MAX_RELEASED);
}

async function readHistory(
  { redis, keys }: RedisContext,
  sku: string,
  { limit, before }: HistoryPage,
): Promise<readonly LedgerEntry[]> {
  const input = { keys: [keys.ledger(sku)], args: [limit, before] };
  const reply = await redis.run(READ_LEDGER, input);
  const [first, texts] = reply as readonly [string, readonly string[]];
  return texts.map((text, i) => toEntry(Number(first) + i, text)).reverse();
}

function toEntry(seq: number, text: string): LedgerEntry {
  const [kind, quantity, outcome, remaining, operation, reservation, fence, at] = text.split("\0");
  return {
    seq,
    kind: kind as LedgerEntryKind,
    quantity: Number(quantity),
    outcome: outcome as StockOutcome,
    remaining: Number(remaining),
    operationId: operation || undefined,
    reservation: reservation || undefined,
    fence: fence || undefined,
    at: new Date(Number(at) / 1_000),
  };
}

async function readReservations(
  { redis, keys }: RedisContext,
  sku: string,
  limit: number,
): Promise<readonly Reservation[]> {
  const input = { keys: [keys.reservations(sku)], args: [limit] };
  const reply = await redis.run(READ_RESERVATIONS, input);
  return (reply as readonly string[]).map((text) => {
    const [, expiresIn, quantity, id = ""] = /^(\d+) (\d+) (.*)$/s.exec(text) ?? [];
    return { id, quantity: Number(quantity), expiresIn: Number(expiresIn) / 1_000 };
  });
}
