import { checkClaim, claim, readClaim } from "../../../database/claim.ts";
import {
  asBigInt,
  asNumber,
  asText,
  type Database,
  DuplicateKeyError,
  type Row,
  type Sql,
  type SqlResult,
} from "../../../database/sql.ts";
import {
  operationConflict,
  type StockOutcome,
  type StockResult,
  unknownReservation,
  unknownSku,
} from "../../../inventory/inventory.ts";
import { type Operation, payloadHash, sameBytes } from "../../../inventory/operation.ts";
import { quote } from "../../../lock/errors.ts";
import type { Fence } from "../../../lock/fence.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import {
  applyCall,
  applyStatements,
  readLedger,
  readMade,
  readStock,
  refusalStatements,
  releaseExpired,
} from "./statements.ts";

/** The database or transaction of an operation, and the fences known to be claimed there. */
export interface SqlContext {
  readonly database: Pick<Database, "dialect" | "batch">;
  readonly claimed: WeakSet<Fence>;
}

/**
 * Applies the operation once, however often this is called.
 *
 * After a lost answer the operation is sent again, which its id makes harmless. The outcome is unknown only if time
 * runs out first.
 */
export async function apply(
  database: Database,
  claimed: WeakSet<Fence>,
  operation: Operation,
  signal: AbortSignal | undefined,
): Promise<StockResult> {
  const what = `${operation.kind} ${quote(operation.operationId)} was done`;
  return retryUntilKnown(database.address, what, signal, async (limit) => {
    try {
      return await attempt({ database, claimed }, operation, limit);
    } catch (error) {
      // The same operation committed in another transaction while this one waited for the stock's row.
      if (error instanceof DuplicateKeyError) return undefined;
      throw error;
    }
  });
}

/** Resolves to undefined if another attempt is needed. */
export async function attempt(
  context: SqlContext,
  operation: Operation,
  limit?: AbortSignal,
): Promise<StockResult | undefined> {
  return (
    (await tryApply(context, operation, limit)) ?? (await recordRefusal(context, operation, limit))
  );
}

/** Applies the operation in one batch, the common case. Resolves to undefined if nothing was applied. */
async function tryApply(
  context: SqlContext,
  operation: Operation,
  limit: AbortSignal | undefined,
): Promise<StockResult | undefined> {
  const { database, claimed } = context;
  const claims = claimUnlessKnown(context, operation);
  const call = applyCall(database.dialect, operation);
  if (call) {
    const results = await database.batch([...claims, call], limit);
    const onHand = results.at(-1)?.rows[0]?.on_hand;
    if (onHand == null) return undefined;
    if (operation.fence) claimed.add(operation.fence);
    return { outcome: "applied", remaining: asNumber(onHand), replayed: false };
  }
  const { before, change, record, after } = applyStatements(database.dialect, operation);
  const first = [...claims, ...before];
  // In the same batch: after the commit, no further answer may be lost.
  const reads = database.dialect.returning ? [] : [readLedger(operation)];
  const results = await database.batch([...first, change, record, ...after, ...reads], limit);
  const { affected, returned } = results[first.length] as SqlResult;
  if (affected !== 1) return undefined;
  if (operation.fence) claimed.add(operation.fence);
  if (returned !== undefined) {
    return { outcome: "applied", remaining: asNumber(returned), replayed: false };
  }
  const [row] = results.at(-1)?.rows ?? [];
  return row && toResult(row, operation, false);
}

/**
 * Finds out why the operation was not applied, and records the refusal if it is final.
 *
 * Resolves to undefined if another attempt is needed.
 */
async function recordRefusal(
  context: SqlContext,
  operation: Operation,
  limit: AbortSignal | undefined,
): Promise<StockResult | undefined> {
  const { database, claimed } = context;
  const { kind, sku, fence, reservation = "" } = operation;
  const { change, record } = refusalStatements(database.dialect, operation) ?? {};
  const writes = change && record ? [...claimUnlessKnown(context, operation), change, record] : [];
  const closes = kind === "confirm" || kind === "cancel";
  const reads = [
    ...[readLedger(operation), readStock(sku)],
    ...(fence ? [readClaim(fence)] : []),
    ...(closes ? [readMade(operation)] : []),
  ];
  const results = await database.batch([...writes, ...reads], limit);
  const [ledger, stock, claim] = results.slice(writes.length).map(({ rows }) => rows);
  if (ledger?.[0]) {
    return toResult(ledger[0], operation, results[writes.length - 2]?.affected !== 1);
  }
  // A failover may have lost the claim: the next attempt raises it again.
  if (fence && isBelow(fence, claim) && claimed.delete(fence)) return undefined;
  if (fence && claim?.[0]) checkClaim(fence, claim);
  if (!stock?.[0]) throw unknownSku(sku);
  if (closes) {
    if (!results.at(-1)?.rows[0]) throw unknownReservation(sku, reservation);
    // The database's clock went back since the first batch: the reservation is open again.
    return undefined;
  }
  await database.batch(releaseExpired(database.dialect, sku), limit);
  return undefined;
}

/** Whether the resource has no claim, or only one of an earlier fence. */
function isBelow({ generation, token }: Fence, [row]: readonly Row[] = []): boolean {
  if (!row) return true;
  const claimed = asNumber(row.generation);
  return claimed < generation || (claimed === generation && asBigInt(row.token) < token);
}

/** Raises the claim once; later statements only verify that it still holds. */
function claimUnlessKnown({ database, claimed }: SqlContext, { fence }: Operation): readonly Sql[] {
  return fence && !claimed.has(fence) ? [claim(database.dialect, fence)] : [];
}

/** Throws an InventoryError if the ledger row belongs to another change. */
function toResult(row: Row, operation: Operation, replayed: boolean): StockResult {
  if (!sameBytes(row.payload_hash as Uint8Array, payloadHash(operation))) {
    throw operationConflict(operation.operationId);
  }
  return {
    outcome: asText(row.outcome) as StockOutcome,
    remaining: asNumber(row.on_hand),
    replayed,
  };
}
