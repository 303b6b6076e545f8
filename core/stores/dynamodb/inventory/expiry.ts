import { quote } from "../../../lock/errors.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { elapsedSince, instant } from "../../../lock/time.ts";
import type { Item } from "../client/items.ts";
import {
  type ChunkEntry,
  type DynamodbContext,
  reservationKey,
  type StockItem,
  stockKey,
  toStock,
  writeStock,
} from "./items.ts";
import { askForTurn } from "./turn.ts";

/** The most reservations in one transaction, beside the units and the ledger. */
const MOST = 90;

/** Releases all expired reservations of the sku. */
export async function expire(context: DynamodbContext, sku: string): Promise<void> {
  const { address } = context.dynamodb;
  const what = `expired reservations of ${quote(sku)} were put back`;
  const release = (limit: AbortSignal) => releaseExpired(context, sku, limit);
  let more = true;
  while (more) more = await retryUntilKnown(address, what, undefined, release);
}

/**
 * Puts the units of expired reservations back on hand. Resolves to false if there are none, and to true if some were
 * released or another client changed the stock in the meantime: more may be left.
 */
export async function releaseExpired(
  context: DynamodbContext,
  sku: string,
  signal: AbortSignal,
): Promise<boolean> {
  const { dynamodb } = context;
  const { items, time } = await dynamodb.read([stockKey(sku)], signal);
  const before = items[0] && toStock(items[0]);
  if (!before?.reserved) return false;
  const { pk, sk: to } = reservationKey(sku, time + 1, "");
  for await (const page of dynamodb.query({ pk, from: "reservation/", to, limit: MOST, signal })) {
    const expired = page.items.map(toReservation);
    if (expired.length === 0) return false;
    const sentAt = instant();
    if (await release(context, { sku, before, expired }, signal)) return true;
    const now = await askForTurn(context, sku, elapsedSince(sentAt), signal);
    if (now) await release(context, { sku, before: now, expired }, signal);
    return true;
  }
  return false;
}

interface Expired {
  readonly sku: string;
  readonly before: StockItem;
  readonly expired: readonly ReturnType<typeof toReservation>[];
}

/** Resolves to false if another client has changed the stock or a reservation in the meantime. */
async function release(
  { dynamodb, cache }: DynamodbContext,
  { sku, before, expired }: Expired,
  signal: AbortSignal,
): Promise<boolean> {
  const total = expired.reduce((sum, { quantity }) => sum + quantity, 0);
  const onHand = before.onHand + total;
  const stock = { ...before, onHand, reserved: before.reserved - total };
  const entries = expired.map((one) => toEntry(one, onHand));
  const { writes, after } = writeStock(sku, { stock, before }, entries);
  const removals = expired.map(({ key }) => ({ key, when: "attribute_exists(#pk)" }));
  const { done } = await dynamodb.write([...writes, ...removals], signal);
  if (done) cache.set(sku, after);
  return done;
}

export function toReservation({ pk = "", sk = "", quantity }: Item) {
  const [, expiresAt, ...id] = sk.split("/");
  return {
    key: { pk, sk },
    id: id.join("/"),
    quantity: Number(quantity),
    expiresAt: Number(expiresAt),
  };
}

function toEntry(
  { id, quantity }: ReturnType<typeof toReservation>,
  remaining: number,
): ChunkEntry {
  const origin = { operationId: undefined, reservation: id, fence: undefined };
  return { kind: "expire", quantity, outcome: "applied", remaining, ...origin };
}
