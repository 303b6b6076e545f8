import { checkClaim, claimAndRead } from "../../../database/claim.ts";
import {
  asBigInt,
  asNumber,
  asText,
  type Database,
  type Dialect,
  DuplicateKeyError,
  list,
  type Row,
  type Sql,
  sql,
  type Transaction,
} from "../../../database/sql.ts";
import {
  type DecrementResult,
  type StockOutcome,
  unknownSku,
} from "../../../inventory/inventory.ts";
import {
  describeBatch,
  type Operation,
  type OperationBatch,
} from "../../../inventory/operation.ts";
import {
  type Plan,
  type PriorResult,
  planBatch,
  type Transition,
} from "../../../inventory/plan.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { recordAll, releaseExpired } from "./statements.ts";

/** Applies the batch in one transaction of two round trips. */
export function applyMany(
  database: Database,
  batch: OperationBatch,
  signal: AbortSignal | undefined,
): Promise<readonly DecrementResult[]> {
  const what = `${describeBatch(batch)} was done`;
  return retryUntilKnown(database.address, what, signal, (limit) =>
    attempt(database, batch, limit),
  );
}

async function attempt(
  database: Database,
  batch: OperationBatch,
  limit: AbortSignal,
): Promise<readonly DecrementResult[] | undefined> {
  try {
    const results = await database.transaction(async (tx) => {
      const { writes, results } = await plan(database.dialect, tx, batch);
      if (results) await tx.commit(writes);
      return results;
    }, limit);
    if (results === undefined)
      await database.batch(releaseExpired(database.dialect, batch.sku), limit);
    return results;
  } catch (error) {
    // An operation id was used for another sku in the meantime: the next attempt reads it.
    if (error instanceof DuplicateKeyError) return undefined;
    throw error;
  }
}

/** Plans the writes and their results; no results if expired reservations have to be released first. */
export async function plan(
  dialect: Dialect,
  tx: Pick<Transaction, "batch">,
  batch: OperationBatch,
): Promise<{ readonly writes: readonly Sql[]; readonly results?: readonly DecrementResult[] }> {
  const state = toState(batch, await tx.batch(readState(dialect, batch)));
  const { isShort, planned, results, ...rest } = planBatch(batch.operations, state, sell);
  if (isShort && state.hasExpired) return { writes: [] };
  return { writes: planned.length > 0 ? write(batch, state, { planned, ...rest }) : [], results };
}

interface State {
  /** Microseconds since 1970 by the database's clock. */
  readonly at: bigint;

  /** The number of the last entry in the ledger. */
  readonly seq: bigint;
  readonly stock: OnHand;
  readonly hasExpired: boolean;
  readonly recorded: ReadonlyMap<string, PriorResult>;
}

interface OnHand {
  readonly onHand: number;
}

function readState(dialect: Dialect, { sku, fence, operations }: OperationBatch): readonly Sql[] {
  const ids = list(operations.map(({ operationId }) => operationId));
  return [
    ...(fence ? claimAndRead(dialect, fence) : []),
    sql`
      SELECT on_hand, seq, ${dialect.now} AS at FROM lockstep_stock
      WHERE sku = ${sku} ${dialect.forUpdate}`,
    sql`
      SELECT COUNT(*) AS expired FROM lockstep_reservation
      WHERE sku = ${sku} AND expires_at <= ${dialect.now}`,
    sql`
      SELECT operation_id, payload_hash, outcome, on_hand FROM lockstep_ledger
      WHERE operation_id IN (${ids})`,
  ];
}

function toState(
  { sku, fence, operations }: OperationBatch,
  results: readonly { rows: readonly Row[] }[],
): State {
  // From the end: a claim takes one statement or two.
  const [ledger = [], expired, stock, claimed = []] = results.map(({ rows }) => rows).reverse();
  const recorded = new Map(
    ledger.map((entry) => [asText(entry.operation_id), toPriorResult(entry)]),
  );
  // Recorded operations keep their results, whatever the fence.
  const isNew = operations.some(({ operationId }) => !recorded.has(operationId));
  if (fence && isNew) checkClaim(fence, claimed);
  const [row] = stock ?? [];
  if (row === undefined) throw unknownSku(sku);
  return {
    at: asBigInt(row.at),
    seq: asBigInt(row.seq),
    stock: { onHand: asNumber(row.on_hand) },
    hasExpired: asNumber(expired?.[0]?.expired) > 0,
    recorded,
  };
}

function toPriorResult({ payload_hash, outcome, on_hand }: Row): PriorResult {
  return {
    hash: payload_hash as Uint8Array,
    outcome: asText(outcome) as StockOutcome,
    remaining: asNumber(on_hand),
  };
}

function sell({ onHand }: OnHand, { quantity }: Operation): Transition<OnHand> {
  return quantity <= onHand
    ? { outcome: "applied", quantity, stock: { onHand: onHand - quantity } }
    : { outcome: "sold-out", quantity, stock: { onHand } };
}

/** The stock's row has been locked since the read; the condition stays all the same: no sale without it. */
function write(
  { sku }: OperationBatch,
  state: State,
  { planned, stock }: Pick<Plan<OnHand>, "planned" | "stock">,
): readonly Sql[] {
  const total = state.stock.onHand - stock.onHand;
  return [
    sql`
      UPDATE lockstep_stock
      SET on_hand = on_hand - ${total}, sold = sold + ${total}, seq = seq + ${planned.length}
      WHERE sku = ${sku} AND on_hand >= ${total}`,
    ...recordAll(planned, state.seq, state.at),
  ];
}
