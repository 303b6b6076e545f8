import type { LedgerEntry, StockLevel } from "../../../inventory/inventory.ts";
import { type Operation, payloadHash } from "../../../inventory/operation.ts";
import type { PriorResult } from "../../../inventory/plan.ts";
import {
  type Compare,
  isAbsent,
  type KeyValue,
  type OpAnswer,
  type Put,
  put,
  type TxnAnswer,
  type TxnOp,
} from "../client/etcd.ts";
import type { CachedKey, EtcdContext, EtcdStockKeys } from "./context.ts";

/** The value of a sku's key. */
export interface StoredStock extends Omit<StockLevel, "sku"> {
  /** The number of the last entry in the ledger. */
  readonly seq: number;

  /** The number of reservations whose units are set aside, expired or not. */
  readonly reservations: number;
}

export const NO_STOCK: StoredStock = {
  onHand: 0,
  reserved: 0,
  sold: 0,
  supplied: 0,
  seq: 0,
  reservations: 0,
};

/** The value of an operation id's key: the operation and its result. */
export interface OperationRecord
  extends PriorResult,
    Pick<Operation, "kind" | "sku" | "quantity" | "reservation"> {}

export type NewLedgerEntry = Omit<LedgerEntry, "seq" | "at">;

export function parseStock(text: string): StoredStock {
  return JSON.parse(text);
}

export function parseOperation(text: string): OperationRecord {
  const record = JSON.parse(text);
  return { ...record, hash: payloadHash(record) };
}

export function parseEntries(text: string): readonly LedgerEntry[] {
  return JSON.parse(text).map((entry: LedgerEntry) => ({ ...entry, at: new Date(entry.at) }));
}

/** A transaction on the stock of a sku. */
export interface StockTransaction {
  readonly when: readonly Compare[];

  /** Writes whose values are cached. */
  readonly state: readonly Put[];
  readonly records: readonly TxnOp[];
  readonly otherwise?: readonly TxnOp[];
}

export async function commit(
  { etcd, cache }: EtcdContext,
  { state, records, ...rest }: StockTransaction,
  limit: AbortSignal,
): Promise<TxnAnswer> {
  const answer = await etcd.txn({ ...rest, do: [...state, ...records] }, limit);
  const modRevision = answer.revision;
  if (answer.succeeded)
    for (const { key, value } of state) cache.set(key, { key, value, modRevision });
  return answer;
}

/** Holds if the key has not changed since it was found, or is still absent. */
export function isUnchanged(key: string, found: CachedKey | undefined): Compare {
  return { keys: key, target: "mod", is: "=", than: found?.modRevision ?? 0n };
}

/** Writes the new stock of a sku and its ledger entries; nothing if there are no entries. */
export function writeStock(
  keys: EtcdStockKeys,
  sku: string,
  stock: StoredStock,
  newEntries: readonly NewLedgerEntry[],
): Pick<StockTransaction, "state" | "records"> {
  const at = new Date();
  const seq = stock.seq + newEntries.length;
  const entries = newEntries.map((entry, i) => ({ seq: stock.seq + 1 + i, ...entry, at }));
  return {
    state: newEntries.length > 0 ? [put(keys.stock(sku), JSON.stringify({ ...stock, seq }))] : [],
    records: chunks(entries).map((chunk) =>
      put(keys.entries(sku, chunk[0]?.seq ?? seq), JSON.stringify(chunk)),
    ),
  };
}

/**
 * The operations of a nested transaction: etcd takes 128 in one transaction, and a nested one may have as many
 * as the outer one has left.
 */
export const CHUNK_SIZE = 60;

export function chunks<T>(all: readonly T[]): readonly (readonly T[])[] {
  return Array.from({ length: Math.ceil(all.length / CHUNK_SIZE) }, (_, i) =>
    all.slice(i * CHUNK_SIZE, (i + 1) * CHUNK_SIZE),
  );
}

/** Nests any number of operations. */
export function nest(ops: readonly TxnOp[]): readonly TxnOp[] {
  if (ops.length <= CHUNK_SIZE) return ops;
  return chunks(ops).map((chunk) => ({ op: "txn", txn: { when: [], do: chunk } }));
}

/**
 * Nests any number of puts on keys that must be absent. If one of the keys exists, the whole transaction changes
 * nothing and rejects with a NoLeaseError.
 */
export function nestPutsIfAbsent(puts: readonly Put[]): readonly TxnOp[] {
  return chunks(puts).map((chunk) => ({
    op: "txn",
    txn: {
      when: chunk.map(({ key }) => isAbsent(key)),
      do: chunk,
      otherwise: chunk.slice(0, 1).map(({ key }) => put(key, "", NO_LEASE)),
    },
  }));
}

/**
 * A lease that is never granted. The comparisons of a nested transaction do not decide about the outer one; but
 * before etcd applies anything, it checks the leases of all puts on the branches that the comparisons choose.
 */
const NO_LEASE = -1n;

/** Collects all key-values in the answers of a transaction, nested ones included, by their keys. */
export function keyValuesIn(answers: readonly OpAnswer[]): ReadonlyMap<string, KeyValue> {
  return new Map(answers.flatMap(kvsOf).map((kv) => [kv.key, kv]));
}

function kvsOf({ kvs, txn }: OpAnswer): readonly KeyValue[] {
  return txn ? txn.answers.flatMap(kvsOf) : kvs;
}
