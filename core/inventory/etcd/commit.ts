import { type Compare, type Op, type Put, put, type TxnAnswer } from "../../etcd/etcd.ts";
import type { Entry } from "../inventory.ts";
import type { Keys } from "./keys.ts";
import { piecesOf } from "./pieces.ts";
import type { Place } from "./place.ts";
import type { Units } from "./records.ts";
import type { Sight } from "./seen.ts";

/** A transaction on the stock of a sku. */
export interface Write {
  readonly when: readonly Compare[];

  /** Keys that are overwritten, and remembered for the next guess. */
  readonly state: readonly Put[];
  readonly records: readonly Op[];
  readonly otherwise?: readonly Op[];
}

export async function commit(
  { etcd, seen }: Place,
  { state, records, ...rest }: Write,
  limit: AbortSignal,
): Promise<TxnAnswer> {
  const answer = await etcd.txn({ ...rest, do: [...state, ...records] }, limit);
  const modRevision = answer.revision;
  if (answer.succeeded) for (const { key, value } of state) seen.keep({ key, value, modRevision });
  return answer;
}

/** Nobody has changed the stock since it was seen, or made it where there was none. */
export function isUnchanged(keys: Keys, sku: string, seen: Sight | undefined): Compare {
  return { keys: keys.stock(sku), target: "mod", is: "=", than: seen?.modRevision ?? 0n };
}

/** Writes what the units have become, if anything happened to them, and takes note of what. */
export function book(
  keys: Keys,
  { sku, units, news }: { sku: string; units: Units; news: readonly Omit<Entry, "seq" | "at">[] },
): Pick<Write, "state" | "records"> {
  const at = new Date();
  const seq = units.seq + news.length;
  const entries = news.map((entry, i) => ({ seq: units.seq + 1 + i, ...entry, at }));
  return {
    state: news.length > 0 ? [put(keys.stock(sku), JSON.stringify({ ...units, seq }))] : [],
    records: piecesOf(entries).map((piece) =>
      put(keys.entries(sku, piece[0]?.seq ?? seq), JSON.stringify(piece)),
    ),
  };
}
