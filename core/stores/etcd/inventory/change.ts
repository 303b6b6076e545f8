import type { DecrementResult } from "../../../inventory/inventory.ts";
import { describeBatch, type OperationBatch } from "../../../inventory/operation.ts";
import { conflictPause, type Plan, type PlannedOperation } from "../../../inventory/plan.ts";
import { inTurn, withoutEffect } from "../../../inventory/turn.ts";
import { sleep } from "../../../lock/abort.ts";
import { hasCode } from "../../../lock/errors.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { elapsedSince, instant } from "../../../lock/time.ts";
import {
  type Compare,
  isAbsent,
  type LeaseId,
  NoLeaseError,
  type Put,
  put,
  remove,
  type Seconds,
  type TxnOp,
  toSeconds,
} from "../client/etcd.ts";
import { refusalIn } from "../client/failure.ts";
import type { CachedKey, EtcdContext, EtcdStockKeys } from "./context.ts";
import { releaseExpired } from "./expiry.ts";
import { isFenceUnchanged, raiseClaim } from "./fence.ts";
import { plan as planOn } from "./plan.ts";
import { ReservationLease, revokeUnused } from "./reservation-lease.ts";
import {
  cachedSnapshot,
  readSnapshot,
  type Snapshot,
  snapshotReads,
  toSnapshot,
} from "./snapshot.ts";
import {
  chunks,
  commit,
  isUnchanged,
  type NewLedgerEntry,
  nestPutsIfAbsent,
  type StockTransaction,
  type StoredStock,
  writeStock,
} from "./transaction.ts";
import { askForTurn, turnAskedFor } from "./turn.ts";

/**
 * Applies a batch once, however often this is called, in one transaction.
 *
 * The client plans the results on a snapshot; the transaction writes them only if the snapshot is still current.
 */
export function applyBatch(
  context: EtcdContext,
  batch: OperationBatch,
  signal: AbortSignal | undefined,
): Promise<readonly DecrementResult[]> {
  const { etcd, queue } = context;
  const { address } = etcd;
  const what = `${describeBatch(batch)} was done`;
  return inTurn({ queue, address, sku: batch.sku }, signal, () =>
    retryUntilKnown(address, what, signal, (limit) => attempt(context, batch, limit)),
  );
}

async function attempt(
  context: EtcdContext,
  batch: OperationBatch,
  limit: AbortSignal,
): Promise<readonly DecrementResult[] | undefined> {
  const lease = new ReservationLease(context.etcd);
  try {
    return await planAndCommit(context, { batch, lease }, limit);
  } catch (error) {
    // A reservation that was perhaps written needs its lease.
    if (!hasCode(error, "UNKNOWN_OUTCOME")) lease.revoke();
    // An id was used for another sku in the meantime, or the lease of a new reservation has ended.
    if (error instanceof NoLeaseError) return undefined;
    const refusal = refusalIn(error);
    if (!refusal) throw error;
    // The refusal is an answer: the refused transaction is committed by now or never.
    const { planned, results } = planOn(batch, await readSnapshot(context, batch, limit));
    if (planned.length > 0) throw refusal;
    return results;
  }
}

async function planAndCommit(
  context: EtcdContext,
  { batch, lease: granted }: LeasedBatch,
  limit: AbortSignal,
): Promise<readonly DecrementResult[]> {
  let snapshot = cachedSnapshot(context, batch) ?? (await readSnapshot(context, batch, limit));
  let knownTurn: CachedKey | undefined;
  for (let conflicts = 0; ; conflicts += 1) {
    const asked = turnAskedFor(snapshot, knownTurn);
    if (asked > 0) {
      knownTurn = snapshot.turnKey;
      await sleep(asked, limit);
      snapshot = await readSnapshot(context, batch, limit);
      continue;
    }
    const begunAt = instant();
    const plan = planOn(batch, snapshot);
    if (mayGain(plan) && (await releaseExpired(context, batch.sku, limit))) {
      snapshot = await readSnapshot(context, batch, limit);
      // It may be the turn that this call has asked for.
      knownTurn = snapshot.turnKey;
      continue;
    }
    const span = spanOfLease(plan);
    const lease = span === undefined ? undefined : await granted.grant(span, limit);
    const changed = await tryCommit(context, { batch, snapshot, plan, lease }, limit);
    if (changed === undefined) {
      if (lease === undefined) granted.revoke();
      return plan.results;
    }
    if (conflicts === 0) {
      snapshot = changed;
      continue;
    }
    const taken = elapsedSince(begunAt);
    await sleep(conflictPause(conflicts, taken), limit);
    const ask = askForTurn(context.keys, batch.sku, taken);
    snapshot = await readSnapshot(context, batch, limit, [ask]).catch((error) => {
      throw withoutEffect(context.etcd.address, error);
    });
    knownTurn = snapshot.turnKey;
  }
}

/** Resolves to undefined if the plan is written, otherwise to the snapshot that contradicts the plan. */
async function tryCommit(
  context: EtcdContext,
  planned: PlannedBatch,
  limit: AbortSignal,
): Promise<Snapshot | undefined> {
  const { batch, snapshot, plan } = planned;
  const txn = toTransaction(context.keys, planned);
  if (txn.state.length === 0) return undefined;
  const { succeeded, answers } = await commit(context, txn, limit);
  if (!succeeded) return toSnapshot(context, batch, answers);
  if (snapshot.lease !== undefined && plan.planned.length > 0) {
    revokeUnused(context.etcd, snapshot.lease);
  }
  return undefined;
}

/** Whether the plan lacks units that expired reservations might hold. */
function mayGain({ isShort, stock }: Plan<StoredStock>): boolean {
  return isShort && stock.reservations > 0;
}

/** How long the reservation of the plan lasts; undefined if the plan makes none. */
function spanOfLease({ planned: [first] }: Plan<StoredStock>): Seconds | undefined {
  if (first?.operation.kind !== "reserve" || first.outcome !== "applied") return undefined;
  return toSeconds((first.operation.expiresIn ?? 0) / 1_000);
}

/** A batch, and the lease of the reservation that it may make. */
interface LeasedBatch {
  readonly batch: OperationBatch;
  readonly lease: ReservationLease;
}

/** A plan, and the snapshot that it is based on. */
interface PlannedBatch {
  readonly batch: OperationBatch;
  readonly snapshot: Snapshot;
  readonly plan: Plan<StoredStock>;

  /** The lease of the new reservation. */
  readonly lease: LeaseId | undefined;
}

/** Writes the plan if the snapshot is still current; otherwise reads a new snapshot. */
function toTransaction(keys: EtcdStockKeys, plannedBatch: PlannedBatch): StockTransaction {
  const { batch, snapshot, plan, lease } = plannedBatch;
  const { sku, fence } = batch;
  const { planned } = plan;
  const { state, records } = writeStock(keys, sku, plan.stock, planned.map(toEntry));
  return {
    when: conditions(keys, plannedBatch),
    state: [...state, ...(fence ? raiseClaim(keys, fence, snapshot.fence) : [])],
    records: [
      ...records,
      ...planned.flatMap((one) => reservationOps(keys, one, lease)),
      ...nestPutsIfAbsent(planned.map((one) => putOperation(keys, one))),
    ],
    otherwise: snapshotReads(keys, batch),
  };
}

function conditions(
  keys: EtcdStockKeys,
  { batch, snapshot, plan }: PlannedBatch,
): readonly Compare[] {
  const { sku, fence } = batch;
  const [first = []] = chunks(plan.planned);
  return [
    isUnchanged(keys.stock(sku), snapshot.stockKey),
    isUnchanged(keys.turn(sku), snapshot.turnKey),
    ...(fence ? isFenceUnchanged(keys, fence, snapshot.fence) : []),
    ...first.map(({ operation }) => isAbsent(keys.operation(operation.operationId))),
    ...plan.planned.flatMap((one) => isNotExpired(keys, one)),
  ];
}

/** A reservation that expires just before the commit is not confirmed. */
function isNotExpired(
  keys: EtcdStockKeys,
  { operation, outcome }: PlannedOperation,
): readonly Compare[] {
  const { kind, sku, reservation = "" } = operation;
  if (kind !== "confirm" || outcome !== "applied") return [];
  return [{ keys: keys.open(sku, reservation), target: "create", is: "!=", than: 0n }];
}

function reservationOps(
  keys: EtcdStockKeys,
  { operation, outcome, quantity }: PlannedOperation,
  lease: LeaseId | undefined,
): readonly TxnOp[] {
  const { kind, sku, operationId, reservation } = operation;
  if (outcome !== "applied") return [];
  if (reservation !== undefined) return [remove({ prefix: keys.reservation(sku, reservation) })];
  if (kind !== "reserve") return [];
  return [
    put(keys.open(sku, operationId), "", lease),
    put(keys.units(sku, operationId), String(quantity)),
  ];
}

function putOperation(
  keys: EtcdStockKeys,
  { operation, outcome, remaining }: PlannedOperation,
): Put {
  const { operationId, kind, sku, quantity, reservation } = operation;
  const record = { kind, sku, quantity, reservation, outcome, remaining };
  return put(keys.operation(operationId), JSON.stringify(record));
}

function toEntry({ operation, quantity, outcome, remaining }: PlannedOperation): NewLedgerEntry {
  const { kind, operationId, reservation, fence } = operation;
  const origin = { operationId, reservation, fence: fence && String(fence) };
  return { kind, quantity, outcome, remaining, ...origin };
}
