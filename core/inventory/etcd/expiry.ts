import { get, type KeyValue, remove } from "../../etcd/etcd.ts";
import { quote } from "../../lock/errors.ts";
import { insist } from "../../lock/insist.ts";
import type { Entry } from "../inventory.ts";
import { book, commit, isUnchanged, type Write } from "./commit.ts";
import { idIn, type Keys } from "./keys.ts";
import { packed } from "./pieces.ts";
import type { Place } from "./place.ts";
import { toUnits, type Units } from "./records.ts";

/** How many keys are read at a time: as many as one transaction can put back. */
const PAGE = 1_000;

/** A reservation whose time is over. */
interface Expired {
  readonly id: string;
  readonly quantity: number;
}

/** Puts the units of all of the sku's expired reservations back on hand. */
export async function expire(place: Place, sku: string): Promise<void> {
  const what = `the expired reservations of ${quote(sku)} were put back`;
  await insist(place.etcd.address, what, undefined, async (limit) => {
    let more = true;
    while (more) more = await putBack(place, sku, limit);
    return true;
  });
}

/**
 * Puts units of expired reservations back on hand. False: there are none.
 *
 * True: some were put back, or somebody else has changed the stock in the meantime. There may be more.
 */
export async function putBack(place: Place, sku: string, limit: AbortSignal): Promise<boolean> {
  const { etcd, keys } = place;
  const count = get({ prefix: keys.reservations(sku) }, { limit: 1, keysOnly: true });
  const { answers } = await etcd.txn({ when: [], do: [get(keys.stock(sku)), count] }, limit);
  const [stock] = answers[0]?.kvs ?? [];
  const units = stock && toUnits(stock.value);
  // Each has two keys until it expires.
  if (!units || answers[1]?.count === 2 * units.reservations) return false;
  const expired = await findExpired(place, sku, limit);
  if (expired.length === 0) return false;
  await commit(place, toWrite(keys, { sku, stock, units, expired }), limit);
  return true;
}

/** Some of the reservations that have expired, if there are any. */
async function findExpired(
  { etcd, keys }: Place,
  sku: string,
  limit: AbortSignal,
): Promise<readonly Expired[]> {
  const prefix = keys.reservations(sku);
  for (let last = prefix; ; ) {
    const { kvs } = await etcd.range(get({ prefix }, { limit: PAGE, after: last }), limit);
    // What is not attached to a lease is a reservation's units; before them stands what its time hangs on.
    const expired = kvs.filter(({ key, lease }, i) => {
      return lease === 0n && (kvs[i - 1]?.key ?? last) !== keys.open(sku, idIn(key));
    });
    if (expired.length > 0 || kvs.length < PAGE) return expired.map(toExpired);
    last = kvs.at(-1)?.key ?? last;
  }
}

function toExpired({ key, value }: KeyValue): Expired {
  return { id: idIn(key), quantity: Number(value) };
}

interface PuttingBack {
  readonly sku: string;
  readonly stock: KeyValue;
  readonly units: Units;
  readonly expired: readonly Expired[];
}

function toWrite(keys: Keys, { sku, stock, units, expired }: PuttingBack): Write {
  const total = expired.reduce((sum, { quantity }) => sum + quantity, 0);
  const onHand = units.onHand + total;
  const after = {
    ...units,
    onHand,
    reserved: units.reserved - total,
    reservations: units.reservations - expired.length,
  };
  const news = expired.map((one) => toEntry(one, onHand));
  const { state, records } = book(keys, { sku, units: after, news });
  const removals = expired.map(({ id }) => remove({ prefix: keys.reservation(sku, id) }));
  return {
    when: [isUnchanged(keys, sku, stock)],
    state,
    records: [...records, ...packed(removals)],
  };
}

function toEntry({ id, quantity }: Expired, onHand: number): Omit<Entry, "seq" | "at"> {
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
