import type { KeyedQueue } from "../../../lock/keyed-queue.ts";
import type { RecentMap } from "../../../lock/recent-map.ts";
import { sha256 } from "../../../lock/sha256.ts";
import type { Etcd, KeyValue } from "../client/etcd.ts";
import { decodeSegment, ownKey } from "../client/names.ts";
import { base64 } from "../client/wire.ts";

/** The keys of stock. */
export interface EtcdStockKeys {
  stock(sku: string): string;

  /** How many milliseconds clients were last asked to wait. Sorts before the key of the stock. */
  turn(sku: string): string;

  /** The prefix of all keys of the skus that start with `start`. */
  skus(start: string): string;

  /** The prefix of the sku's ledger; later entries sort first. */
  ledger(sku: string): string;

  /** The key of a chunk of ledger entries, by the number of its first entry. */
  entries(sku: string, seq: number): string;

  /** The prefix of the sku's open reservations. */
  reservations(sku: string): string;

  /** The prefix of a reservation's two keys, `open` and `units`, which are adjacent in this order. */
  reservation(sku: string, id: string): string;

  /** Attached to a lease: the reservation expires with the lease. */
  open(sku: string, id: string): string;

  /** The units that the reservation sets aside, until it is closed or released. */
  units(sku: string, id: string): string;

  operation(id: string): string;

  /** The highest fence that a resource has seen. */
  claim(resource: string): string;
}

export function stockKeys(prefix: string): EtcdStockKeys {
  const own = (...segments: readonly string[]) => ownKey(prefix, ...segments);
  const reservations = (sku: string) => `${own("stock", sku, "reservation")}/`;
  return {
    stock: (sku) => own("stock", sku, "state"),
    turn: (sku) => own("stock", sku, "asked"),
    skus: (start) => own("stock", start),
    ledger: (sku) => `${own("stock", sku, "ledger")}/`,
    entries: (sku, seq) => own("stock", sku, "ledger", descending(seq)),
    reservations,
    reservation: (sku, id) => `${own("stock", sku, "reservation", id)}/`,
    open: (sku, id) => own("stock", sku, "reservation", id, "open"),
    units: (sku, id) => own("stock", sku, "reservation", id, "units"),
    operation: (id) =>
      id.length <= 64 ? own("operation", id) : own("operation", "sha256", hash(id)),
    claim: (resource) => own("claim", resource),
  };
}

/** Hashes long ids, so that a batch fits into etcd's request limit of 1.5 MiB. */
function hash(id: string): string {
  const text = base64.encode(sha256(id));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** Reads the sku from one of its keys. */
export function skuIn(key: string): string {
  return decodeSegment(/%lockstep\/stock\/([^/]*)/.exec(key)?.[1] ?? "");
}

/** Reads the reservation's id from one of its keys. */
export function reservationIn(key: string): string {
  return decodeSegment(key.split("/").at(-2) ?? "");
}

/** Makes ascending keys, the order that etcd reads without sorting, the newest first. */
function descending(seq: number): string {
  return String(Number.MAX_SAFE_INTEGER - seq).padStart(16, "0");
}

/** The client, the keys and the caches of one inventory. */
export interface EtcdContext {
  readonly etcd: Etcd;
  readonly keys: EtcdStockKeys;

  /** The last known value of keys: a guess that a transaction verifies. */
  readonly cache: RecentMap<CachedKey>;

  /** Orders this client's changes by sku. */
  readonly queue: KeyedQueue;
}

export type CachedKey = Pick<KeyValue, "key" | "value" | "modRevision">;
