import { keyOf } from "../../redis/names.ts";

/** Where stock is kept. */
export interface Keys {
  /** A hash: the units of a sku. */
  stock(sku: string): string;

  /** A sorted set: the sku's open reservations as "QUANTITY ID", by when they expire. */
  reservations(sku: string): string;

  /** A list: the sku's ledger, oldest first. */
  ledger(sku: string): string;

  /** What was done under an operation id, for ever. */
  operation(id: string): string;

  /** The highest fence that a resource has seen, and its owner. */
  claim(resource: string): string;
}

export function keysUnder(prefix: string): Keys {
  return {
    stock: (sku) => keyOf(prefix, "stock", sku),
    reservations: (sku) => keyOf(prefix, "reservations", sku),
    ledger: (sku) => keyOf(prefix, "ledger", sku),
    operation: (id) => keyOf(prefix, "operation", id),
    claim: (resource) => keyOf(prefix, "claim", resource),
  };
}
