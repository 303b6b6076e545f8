import { quote } from "../../../lock/errors.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { elapsedSince, instant } from "../../../lock/time.ts";
import { get, type KeyValue, type Put, remove } from "../client/etcd.ts";
import type { EtcdContext } from "./context.ts";
import { type EtcdStockKeys, reservationIn } from "./context.ts";
import {
  commit,
  isUnchanged,
  type NewLedgerEntry,
  nest,
  parseStock,
  type StockTransaction,
  writeStock,
} from "./transaction.ts";
import { askForTurn } from "./turn.ts";

/** The keys per read: as many as one transaction can release. */
const PAGE = 1_000;

interface ExpiredReservation {
  readonly id: string;
  readonly quantity: number;
}

/** Releases all expired reservations of the sku. */
export async function expire(context: EtcdContext, sku: string): Promise<void> {
  const what = `the expired reservations of ${quote(sku)} were put back`;
  const release = (limit: AbortSignal) => releaseExpired(context, sku, limit);
  let more = true;
  while (more) more = await retryUntilKnown(context.etcd.address, what, undefined, release);
}

/**
 * Puts the units of expired reservations back on hand. Resolves to false if there are none, and to true if some
 * were released or another client changed the stock in the meantime: more may be left.
 */
export async function releaseExpired(
  context: EtcdContext,
  sku: string,
  limit: AbortSignal,
): Promise<boolean> {
  const begunAt = instant();
  const release = await tryRelease(context, sku, [], limit);
  if (release === "overtaken") {
    const ask = askForTurn(context.keys, sku, elapsedSince(begunAt));
    await tryRelease(context, sku, [ask], limit);
  }
  return release !== "not needed";
}

/** Releases the first page of expired reservations, on what it reads after `puts`. */
async function tryRelease(
  context: EtcdContext,
  sku: string,
  puts: readonly Put[],
  limit: AbortSignal,
): Promise<"done" | "not needed" | "overtaken"> {
  const { etcd, keys } = context;
  const count = get({ prefix: keys.reservations(sku) }, { limit: 1, keysOnly: true });
  const reads = [get(keys.stock(sku)), count];
  const { answers } = await etcd.txn({ when: [], do: [...puts, ...reads] }, limit);
  const [stock, reservations] = answers.slice(puts.length);
  const [stockKey] = stock?.kvs ?? [];
  // A reservation has two keys until it expires.
  const isAnyExpired =
    stockKey && reservations?.count !== 2 * parseStock(stockKey.value).reservations;
  if (!isAnyExpired) return "not needed";
  const expired = await findExpired(context, sku, limit);
  if (expired.length === 0) return "not needed";
  const { succeeded } = await commit(context, toTransaction(keys, sku, stockKey, expired), limit);
  return succeeded ? "done" : "overtaken";
}

/** Finds the first page of expired reservations. */
async function findExpired(
  { etcd, keys }: EtcdContext,
  sku: string,
  limit: AbortSignal,
): Promise<readonly ExpiredReservation[]> {
  const prefix = keys.reservations(sku);
  for (let last = prefix; ; ) {
    const { kvs } = await etcd.range(get({ prefix }, { limit: PAGE, after: last }), limit);
    // A key without a lease holds a reservation's units; while the reservation is open, its `open` key precedes.
    const expired = kvs.filter(({ key, lease }, i) => {
      return lease === 0n && (kvs[i - 1]?.key ?? last) !== keys.open(sku, reservationIn(key));
    });
    if (expired.length > 0 || kvs.length < PAGE) return expired.map(toExpired);
    last = kvs.at(-1)?.key ?? last;
  }
}

function toExpired({ key, value }: KeyValue): ExpiredReservation {
  return { id: reservationIn(key), quantity: Number(value) };
}

function toTransaction(
  keys: EtcdStockKeys,
  sku: string,
  stockKey: KeyValue,
  expired: readonly ExpiredReservation[],
): StockTransaction {
  const before = parseStock(stockKey.value);
  const total = expired.reduce((sum, { quantity }) => sum + quantity, 0);
  const onHand = before.onHand + total;
  const stock = {
    ...before,
    onHand,
    reserved: before.reserved - total,
    reservations: before.reservations - expired.length,
  };
  const entries = expired.map((one) => toEntry(one, onHand));
  const { state, records } = writeStock(keys, sku, stock, entries);
  const removals = expired.map(({ id }) => remove({ prefix: keys.reservation(sku, id) }));
  return {
    when: [isUnchanged(keys.stock(sku), stockKey)],
    state,
    records: [...records, ...nest(removals)],
  };
}

function toEntry({ id, quantity }: ExpiredReservation, onHand: number): NewLedgerEntry {
  return {
    kind: "expire",
    quantity,
    outcome: "applied",
    remaining: onHand,
    operationId: undefined,
    reservation: id,
    fence: undefined,
  };
}
