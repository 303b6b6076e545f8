import { base64 } from "../../etcd/base64.ts";
import { decodeSegment, ownKey } from "../../etcd/names.ts";
import { sha256 } from "../../lock/sha256.ts";

/** Where stock is kept. */
export interface Keys {
  stock(sku: string): string;

  /** The prefix of the sku's ledger, in which later entries come first. */
  ledger(sku: string): string;

  /** Of entries in the ledger, by the number of the first of them. */
  entries(sku: string, seq: number): string;

  /** The prefix of the sku's open reservations. */
  reservations(sku: string): string;

  /** The prefix of a reservation's two keys, `open` and `units`: next to each other in this order. */
  reservation(sku: string, id: string): string;

  /** Attached to a lease: when that ends, the reservation has expired. */
  open(sku: string, id: string): string;

  /** How many units are set aside, until somebody puts them somewhere else. */
  units(sku: string, id: string): string;

  operation(id: string): string;

  /** The highest fence that a resource has seen. */
  claim(resource: string): string;
}

export function keysUnder(prefix: string): Keys {
  const own = (...segments: readonly string[]) => ownKey(prefix, ...segments);
  const reservations = (sku: string) => `${own("stock", sku, "reservation")}/`;
  return {
    stock: (sku) => own("stock", sku, "state"),
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

/** So that a batch fits into the 1.5 MiB that etcd takes at once, however long its ids are. */
function hash(id: string): string {
  const text = base64.encode(sha256(id));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** The id in a reservation's key. */
export function idIn(key: string): string {
  return decodeSegment(key.split("/").at(-2) ?? "");
}

/** So that keys in ascending order, which is what etcd reads without sorting, are the newest first. */
function descending(seq: number): string {
  return String(Number.MAX_SAFE_INTEGER - seq).padStart(16, "0");
}
