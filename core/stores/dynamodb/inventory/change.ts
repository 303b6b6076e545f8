import { type DecrementResult, unknownSku } from "../../../inventory/inventory.ts";
import {
  describeBatch,
  type Operation,
  type OperationBatch,
} from "../../../inventory/operation.ts";
import {
  conflictPause,
  type Plan,
  type PlannedOperation,
  planBatch,
} from "../../../inventory/plan.ts";
import { type ReservationState, transition } from "../../../inventory/transitions.ts";
import { inTurn } from "../../../inventory/turn.ts";
import { sleep } from "../../../lock/abort.ts";
import { StoreRefusedError, UnknownOutcomeError } from "../../../lock/errors.ts";
import type { Fence } from "../../../lock/fence.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { elapsedSince, instant } from "../../../lock/time.ts";
import type { ItemWrite, Written } from "../client/dynamodb.ts";
import type { Item } from "../client/items.ts";
import { releaseExpired } from "./expiry.ts";
import { claim, fencedOut, raiseClaim } from "./fence.ts";
import {
  type ChunkEntry,
  type DynamodbContext,
  NO_STOCK,
  operationKey,
  type RecordedOperation,
  reservationKey,
  type StockItem,
  stockKey,
  toRecorded,
  toStock,
  writeOperation,
  writeStock,
} from "./items.ts";
import { askForTurn, turnAskedFor } from "./turn.ts";

/** The most operations in one transaction of 100 items, beside units, ledger, claim, and a reservation. */
const MOST = 96;

/** The same, of single changes that share a transaction. Each new reservation has two items. */
export const GROUP_SIZES = { decrement: MOST, reserve: MOST / 2 };

/**
 * Applies a batch once, however often this is called: up to 96 operations in one transaction, more in several.
 *
 * If a later transaction fails, the outcome of the batch is unknown: a second call with the same ids tells.
 */
export async function applyBatch(
  context: DynamodbContext,
  batch: OperationBatch,
  signal: AbortSignal | undefined,
): Promise<readonly DecrementResult[]> {
  const { dynamodb, queue } = context;
  const { address } = dynamodb;
  const what = `${describeBatch(batch)} was done`;
  const results: DecrementResult[] = [];
  let isBegun = false;
  for (let from = 0; from < batch.operations.length; from += MOST) {
    const part = { ...batch, operations: batch.operations.slice(from, from + MOST) };
    let attempts = 0;
    const attempt = (limit: AbortSignal) => {
      attempts += 1;
      return planAndCommit(context, part, limit);
    };
    try {
      const done = await inTurn({ queue, address, sku: batch.sku }, signal, () =>
        retryUntilKnown(address, what, signal, attempt),
      );
      // After a lost answer, the operations of this very call are replayed ones.
      isBegun ||= attempts > 1 || done.some(isApplied);
      results.push(...done);
    } catch (error) {
      throw isBegun ? new UnknownOutcomeError(address, what, error) : error;
    }
  }
  return results;
}

function isApplied({ replayed, outcome }: DecrementResult): boolean {
  return !replayed && outcome !== "conflict";
}

/** Everything that the results of a batch depend on. */
export interface StockSnapshot {
  readonly stock: StockItem | undefined;

  /** The records of the operation ids that the batch names. */
  readonly recorded: ReadonlyMap<string, RecordedOperation>;

  /** The reservation to close. */
  readonly reservation: ReservationState;

  /** By the server's clock, the full second before; NaN for a snapshot that was not read. */
  readonly time: number;
}

/** The client plans the results on a snapshot; the transaction writes them only if the snapshot is still current. */
async function planAndCommit(
  context: DynamodbContext,
  batch: OperationBatch,
  limit: AbortSignal,
): Promise<readonly DecrementResult[]> {
  let snapshot = cachedSnapshot(context, batch) ?? (await readSnapshot(context, batch, limit));
  for (let conflicts = 0; ; conflicts += 1) {
    const begunAt = instant();
    const plan = await planUnderFence(context, batch, snapshot, limit);
    const mayGain = plan.isShort && plan.stock.reserved > 0;
    if (mayGain && (await releaseExpired(context, batch.sku, limit))) {
      snapshot = await readSnapshot(context, batch, limit);
      continue;
    }
    const changed = await tryCommit(context, { batch, snapshot, plan }, limit);
    if (changed === undefined) return plan.results;
    const span = elapsedSince(begunAt);
    const asked = turnAskedFor(snapshot.stock, changed.stock);
    if (asked > 0) {
      await sleep(asked, limit);
      snapshot = await readSnapshot(context, batch, limit);
      continue;
    }
    if (conflicts > 0) await sleep(conflictPause(conflicts, span), limit);
    snapshot = needsClock(batch) ? await readSnapshot(context, batch, limit) : changed;
    if (conflicts === 0) continue;
    const stock = await askForTurn(context, batch.sku, span, limit);
    snapshot = { ...snapshot, stock };
  }
}

/** Plans the batch. A late holder learns that it is late, whatever else is wrong with its change. */
async function planUnderFence(
  { dynamodb }: DynamodbContext,
  batch: OperationBatch,
  snapshot: StockSnapshot,
  limit: AbortSignal,
): Promise<Plan<StockItem>> {
  try {
    return planOn(batch, snapshot);
  } catch (error) {
    if (batch.fence) await claim(dynamodb, batch.fence, limit);
    throw error;
  }
}

export function planOn(
  { sku, operations }: OperationBatch,
  snapshot: StockSnapshot,
): Plan<StockItem> {
  const { stock, recorded, reservation } = snapshot;
  const isNew = operations.some(({ operationId }) => !recorded.has(operationId));
  if (isNew && !stock && operations[0]?.kind !== "set") throw unknownSku(sku);
  return planBatch(operations, { stock: stock ?? NO_STOCK, recorded }, (before, operation) =>
    transition(before, operation, reservation),
  );
}

interface PlannedBatch {
  readonly batch: OperationBatch;
  readonly snapshot: StockSnapshot;
  readonly plan: Plan<StockItem>;
}

/** Resolves to undefined if the plan is written, otherwise to the snapshot that contradicts the plan. */
async function tryCommit(
  { dynamodb, cache }: DynamodbContext,
  { batch, snapshot, plan }: PlannedBatch,
  limit: AbortSignal,
): Promise<StockSnapshot | undefined> {
  const { sku, fence, operations } = batch;
  const claim = fence ? [raiseClaim(fence)] : [];
  if (plan.planned.length === 0) {
    // A recorded operation keeps its result, whether its fence is late or not.
    if (fence) await dynamodb.write(claim, limit);
    return undefined;
  }
  const { stock } = plan;
  const { writes, after } = writeStock(
    sku,
    { stock, before: snapshot.stock },
    plan.planned.map(toEntry),
  );
  const records = plan.planned.map((one) => writeOperation(one, expiryOf(one, snapshot)));
  const reservations = plan.planned.flatMap((one) => writeReservation(one, snapshot));
  const all = [...writes, ...records, ...reservations, ...claim];
  const written = await dynamodb.write(all, limit);
  if (written.done) {
    cache.set(sku, after);
    return undefined;
  }
  const changed = toChanged(snapshot, all, written);
  if (changed.stock) cache.set(sku, changed.stock);
  else cache.delete(sku);
  const isNew = operations.some(({ operationId }) => !changed.recorded.has(operationId));
  if (fence && isNew) checkClaim(fence, written);
  return changed;
}

/** Throws a FencedOutError if the claim, which is the last write, was refused. */
function checkClaim(fence: Fence, { failed, items }: Written): void {
  if (failed.at(-1)) throw fencedOut(fence, items.at(-1) ?? {});
}

/** Returns the snapshot, corrected by the items of the conditions that failed. The other conditions confirm the rest. */
function toChanged(
  { stock, recorded, reservation, time }: StockSnapshot,
  writes: readonly ItemWrite[],
  { failed, items }: Written,
): StockSnapshot {
  const now = new Map(recorded);
  let [units, isSetAside] = [stock, reservation.isSetAside];
  for (const [i, { key }] of writes.entries()) {
    const item = items[i];
    if (!failed[i]) continue;
    if (i === 0) units = item && toStock(item);
    if (item && key.pk.startsWith(OPERATION))
      now.set(key.pk.slice(OPERATION.length), toRecorded(item));
    if (key.sk.startsWith("reservation/")) isSetAside = false;
  }
  const isOpen = reservation.isOpen && isSetAside;
  return { stock: units, recorded: now, reservation: { ...reservation, isSetAside, isOpen }, time };
}

const OPERATION = operationKey("").pk;

/** Returns when a new reservation expires, by the server's clock: never earlier, and up to a second later. */
export function expiryOf({ operation }: PlannedOperation, { time }: StockSnapshot): number {
  return operation.kind === "reserve" ? time + 1_000 + Math.ceil(operation.expiresIn / 1_000) : 0;
}

export function writeReservation(
  planned: PlannedOperation,
  snapshot: StockSnapshot,
): readonly ItemWrite[] {
  const { operation, outcome, quantity } = planned;
  const { kind, sku, operationId, reservation } = operation;
  if (outcome !== "applied") return [];
  if (reservation !== undefined) {
    const { expiresAt = 0 } = snapshot.recorded.get(reservation) ?? {};
    const key = reservationKey(sku, expiresAt, reservation);
    return [{ key, when: "attribute_exists(#pk)" }];
  }
  if (kind !== "reserve") return [];
  const key = reservationKey(sku, expiryOf(planned, snapshot), operationId);
  return [{ key, update: "SET #quantity = :quantity", values: { quantity } }];
}

export function toEntry({ operation, quantity, outcome, remaining }: PlannedOperation): ChunkEntry {
  const { kind, operationId, reservation, fence } = operation;
  const origin = { operationId, reservation, fence: fence && String(fence) };
  return { kind, quantity, outcome, remaining, ...origin };
}

const NONE: ReservationState = { made: undefined, isSetAside: false, isOpen: false };

/** Builds a snapshot of new operations from the cache; undefined for reservations, which need the server's clock. */
function cachedSnapshot(
  { cache }: DynamodbContext,
  batch: OperationBatch,
): StockSnapshot | undefined {
  const stock = cache.get(batch.sku);
  if (!stock || needsClock(batch)) return undefined;
  return { stock, recorded: new Map(), reservation: NONE, time: Number.NaN };
}

function needsClock({ operations: [first] }: OperationBatch): boolean {
  return first?.kind === "reserve" || first?.reservation !== undefined;
}

export async function readSnapshot(
  { dynamodb, cache }: DynamodbContext,
  { sku, operations }: OperationBatch,
  limit: AbortSignal,
): Promise<StockSnapshot> {
  // A batch that closes a reservation has a single operation.
  const [{ reservation } = NO_OPERATION] = operations;
  const named = operations.map(({ operationId }) => operationId);
  const ids = [...new Set(reservation === undefined ? named : [...named, reservation])];
  const keys = [stockKey(sku), ...ids.map(operationKey)];
  const { items, time } = await dynamodb.read(keys, limit);
  if (Number.isNaN(time)) {
    throw new StoreRefusedError(dynamodb.address, "its answers have no Date, by which to expire");
  }
  const [units, ...records] = items;
  const stock = units && toStock(units);
  if (stock) cache.set(sku, stock);
  const recorded = new Map(
    ids.flatMap((id, i) => (records[i] ? [[id, toRecorded(records[i] as Item)] as const] : [])),
  );
  const made = recorded.get(reservation ?? "");
  const found =
    made && (await dynamodb.get(reservationKey(sku, made.expiresAt, reservation ?? ""), limit));
  const isSetAside = found !== undefined;
  const isOpen = isSetAside && (made?.expiresAt ?? 0) > time;
  return { stock, recorded, reservation: { made, isSetAside, isOpen }, time };
}

const NO_OPERATION: Pick<Operation, "reservation"> = { reservation: undefined };
