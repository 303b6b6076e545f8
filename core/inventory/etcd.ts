import type { Etcd } from "../etcd/etcd.ts";
import { checkPrefix } from "../etcd/names.ts";
import { Line } from "../lock/line.ts";
import { applyAlone, inventoryOn } from "./backend.ts";
import { change } from "./etcd/change.ts";
import { claim } from "./etcd/claim.ts";
import { expire } from "./etcd/expiry.ts";
import { history } from "./etcd/history.ts";
import { keysUnder } from "./etcd/keys.ts";
import type { Place } from "./etcd/place.ts";
import { toUnits } from "./etcd/records.ts";
import { Seen } from "./etcd/seen.ts";
import type { Inventory, Stock } from "./inventory.ts";

export interface EtcdInventoryOptions {
  /** Stands before all keys, so that several users can share a cluster: "" or a text that ends in "/". */
  readonly prefix?: string;
}

/**
 * Stock in the keys of etcd 3.4 or later. Who opened the client closes it.
 *
 * The fence of an etcd lock is refused as soon as its lock is gone, whether or not a successor has come: the
 * lock has to be in the same cluster. Reservations last whole seconds, rounded up, and no less than etcd
 * grants; `at` in the ledger is by the clock of the client, since etcd has none that can be read.
 */
export function etcdInventory(etcd: Etcd, { prefix = "" }: EtcdInventoryOptions = {}): Inventory {
  checkPrefix(prefix);
  const line = new Line(Number.POSITIVE_INFINITY);
  const place = { etcd, keys: keysUnder(prefix), seen: new Seen(), line };
  return inventoryOn({
    address: etcd.address,
    get: (sku) => get(place, sku),
    apply: (operation, signal) => applyAlone(operation, (batch) => change(place, batch, signal)),
    applyMany: (batch, signal) => change(place, batch, signal),
    expire: (sku) => expire(place, sku),
    history: (sku, page) => history(place, sku, page),
    claim: (fence) => claim(place, fence),
  });
}

async function get({ etcd, keys }: Place, sku: string): Promise<Stock | undefined> {
  const { kvs } = await etcd.range({ op: "get", keys: keys.stock(sku) });
  if (!kvs[0]) return undefined;
  const { onHand, reserved, sold, supplied } = toUnits(kvs[0].value);
  return { sku, onHand, reserved, sold, supplied };
}
