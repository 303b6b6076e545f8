import { get, type KeyValue, type Lease, type Op, type OpAnswer } from "../../etcd/etcd.ts";
import type { Batch } from "../operation.ts";
import { isAhead, type Standing, standingReads, toStanding } from "./fencing.ts";
import type { Keys } from "./keys.ts";
import { PIECE, packed } from "./pieces.ts";
import type { Place } from "./place.ts";
import { type Recorded, toRecorded, toUnits, type Units } from "./records.ts";
import type { Sight } from "./seen.ts";

/** All that the outcome of a batch depends on, at one moment. */
export interface View {
  /** The key with the sku's units; undefined: there is no such sku. */
  readonly stock: Sight | undefined;
  readonly units: Units | undefined;

  /** Of the batch's fence. */
  readonly standing: Standing;

  /** What was done under the ids that the batch names. */
  readonly recorded: ReadonlyMap<string, Recorded>;

  /** Whether the units of the reservation to be closed are set aside, and its lease until it has expired. */
  readonly isSetAside: boolean;
  readonly lease: Lease | undefined;
}

export async function look(place: Place, batch: Batch, limit: AbortSignal): Promise<View> {
  const { answers } = await place.etcd.txn({ when: [], do: reads(place.keys, batch) }, limit);
  return toView(place, batch, answers);
}

/** What is read for a view. */
export function reads(keys: Keys, batch: Batch): readonly Op[] {
  const { sku, fence } = batch;
  const reservation = reservationOf(batch);
  return [
    get(keys.stock(sku)),
    ...(fence ? standingReads(keys, fence) : []),
    ...(reservation === undefined ? [] : [get({ prefix: keys.reservation(sku, reservation) })]),
    ...packed(idsOf(batch).map((id) => get(keys.operation(id)))),
  ];
}

/** The view in the answers to `reads`, remembered for the next guess. */
export function toView({ keys, seen }: Place, batch: Batch, answers: readonly OpAnswer[]): View {
  const { sku, fence } = batch;
  const found = foundIn(answers);
  const stock = found.get(keys.stock(sku));
  const claim = fence && found.get(keys.claim(fence.resource));
  for (const kv of [stock, claim]) if (kv) seen.keep(kv);
  const reservation = reservationOf(batch) ?? "";
  return {
    stock,
    units: stock && toUnits(stock.value),
    standing: fence ? toStanding(keys, fence, found) : NO_FENCE,
    recorded: new Map(idsOf(batch).flatMap((id) => recordOf(id, found.get(keys.operation(id))))),
    isSetAside: found.has(keys.units(sku, reservation)),
    lease: found.get(keys.open(sku, reservation))?.lease,
  };
}

/**
 * What was last seen, if the batch can be tried on it: its transaction then finds out whether all is still so,
 * whether the fence's lock is there, and whether the ids are new.
 */
export function guess({ keys, seen }: Place, batch: Batch): View | undefined {
  const { sku, fence, operations } = batch;
  const stock = seen.get(keys.stock(sku));
  const claim = fence && seen.get(keys.claim(fence.resource))?.value;
  const isLate = fence && claim !== undefined && isAhead(claim, fence);
  // Of more ids than one piece holds, one that is not new makes the transaction fail, and etcd log a warning.
  const isLarge = operations.length > PIECE;
  if (!stock || isLate || isLarge || reservationOf(batch) !== undefined) return undefined;
  return {
    stock,
    units: toUnits(stock.value),
    standing: { claim, isGone: false },
    recorded: new Map(),
    isSetAside: false,
    lease: undefined,
  };
}

const NO_FENCE: Standing = { claim: undefined, isGone: false };

/** The reservation to be closed: whoever closes one does nothing else. */
function reservationOf({ operations: [first] }: Batch): string | undefined {
  return first?.reservation;
}

function idsOf(batch: Batch): readonly string[] {
  const ids = batch.operations.map(({ operationId }) => operationId);
  const reservation = reservationOf(batch);
  return reservation === undefined ? ids : [...ids, reservation];
}

function recordOf(id: string, kv: KeyValue | undefined): readonly (readonly [string, Recorded])[] {
  return kv ? [[id, toRecorded(kv.value)]] : [];
}

/** All that was read, by its keys. */
export function foundIn(answers: readonly OpAnswer[]): ReadonlyMap<string, KeyValue> {
  return new Map(answers.flatMap(kvsOf).map((kv) => [kv.key, kv]));
}

function kvsOf({ kvs, txn }: OpAnswer): readonly KeyValue[] {
  return txn ? txn.answers.flatMap(kvsOf) : kvs;
}
