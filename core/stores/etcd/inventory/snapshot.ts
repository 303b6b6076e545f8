import type { OperationBatch } from "../../../inventory/operation.ts";
import { get, type LeaseId, type OpAnswer, type Put, type TxnOp } from "../client/etcd.ts";
import type { CachedKey, EtcdContext, EtcdStockKeys } from "./context.ts";
import { type FenceState, fenceReads, isSuperseded, toFenceState, UNCLAIMED } from "./fence.ts";
import {
  CHUNK_SIZE,
  keyValuesIn,
  nest,
  type OperationRecord,
  parseOperation,
  parseStock,
  type StoredStock,
} from "./transaction.ts";

/** Everything that the results of a batch depend on, at one revision. */
export interface Snapshot {
  /** The sku's key; undefined if the sku does not exist. */
  readonly stockKey: CachedKey | undefined;
  readonly stock: StoredStock | undefined;

  /** The key of the last turn that a client has asked for. */
  readonly turnKey: CachedKey | undefined;

  /** The state of the batch's fence. */
  readonly fence: FenceState;

  /** The records of the operation ids that the batch names. */
  readonly recorded: ReadonlyMap<string, OperationRecord>;

  /** Whether the units of the reservation to close are still set aside. */
  readonly isSetAside: boolean;

  /** The lease of the reservation to close, until it expires. */
  readonly lease: LeaseId | undefined;
}

/** Reads the snapshot after `puts`, in one transaction. */
export async function readSnapshot(
  context: EtcdContext,
  batch: OperationBatch,
  limit: AbortSignal,
  puts: readonly Put[] = [],
): Promise<Snapshot> {
  const reads = snapshotReads(context.keys, batch);
  const { answers } = await context.etcd.txn({ when: [], do: [...puts, ...reads] }, limit);
  return toSnapshot(context, batch, answers);
}

export function snapshotReads(keys: EtcdStockKeys, batch: OperationBatch): readonly TxnOp[] {
  const { sku, fence } = batch;
  const reservation = reservationOf(batch);
  return [
    get(keys.stock(sku)),
    get(keys.turn(sku)),
    ...(fence ? fenceReads(keys, fence) : []),
    ...(reservation === undefined ? [] : [get({ prefix: keys.reservation(sku, reservation) })]),
    ...nest(idsOf(batch).map((id) => get(keys.operation(id)))),
  ];
}

/** Converts the answers to `snapshotReads`, and caches them. */
export function toSnapshot(
  { keys, cache }: EtcdContext,
  batch: OperationBatch,
  answers: readonly OpAnswer[],
): Snapshot {
  const { sku, fence } = batch;
  const found = keyValuesIn(answers);
  const stockKey = found.get(keys.stock(sku));
  const turnKey = found.get(keys.turn(sku));
  const claim = fence && found.get(keys.claim(fence.resource));
  for (const kv of [stockKey, turnKey, claim]) if (kv) cache.set(kv.key, kv);
  const reservation = reservationOf(batch) ?? "";
  const recorded = idsOf(batch).flatMap((id) => {
    const kv = found.get(keys.operation(id));
    return kv ? [[id, parseOperation(kv.value)] as const] : [];
  });
  return {
    stockKey,
    stock: stockKey && parseStock(stockKey.value),
    turnKey,
    fence: fence ? toFenceState(keys, fence, found) : UNCLAIMED,
    recorded: new Map(recorded),
    isSetAside: found.has(keys.units(sku, reservation)),
    lease: found.get(keys.open(sku, reservation))?.lease,
  };
}

/**
 * Builds a snapshot from the cache. The batch's transaction then verifies that nothing has changed, that the
 * fence's lock exists, and that the operation ids are new. Undefined if a read is better.
 */
export function cachedSnapshot(
  { keys, cache }: EtcdContext,
  batch: OperationBatch,
): Snapshot | undefined {
  const { sku, fence, operations } = batch;
  const stockKey = cache.get(keys.stock(sku));
  const claim = fence && cache.get(keys.claim(fence.resource))?.value;
  const isLate = fence && claim !== undefined && isSuperseded(claim, fence);
  // With more than one chunk of ids, a used id fails the transaction, and etcd logs a warning.
  const isLarge = operations.length > CHUNK_SIZE;
  if (!stockKey || isLate || isLarge || reservationOf(batch) !== undefined) return undefined;
  return {
    stockKey,
    stock: parseStock(stockKey.value),
    turnKey: cache.get(keys.turn(sku)),
    fence: { claim, isLockGone: false },
    recorded: new Map(),
    isSetAside: false,
    lease: undefined,
  };
}

/** The reservation to close; a batch that closes one has a single operation. */
function reservationOf({ operations: [first] }: OperationBatch): string | undefined {
  return first?.reservation;
}

function idsOf(batch: OperationBatch): readonly string[] {
  const ids = batch.operations.map(({ operationId }) => operationId);
  const reservation = reservationOf(batch);
  return reservation === undefined ? ids : [...ids, reservation];
}
