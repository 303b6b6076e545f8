import { checkClaim, claim, readClaim } from "../../database/claim.ts";
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
} from "../../database/sql.ts";
import { quote } from "../../lock/errors.ts";
import { insist } from "../../lock/insist.ts";
import { type OrderAnswer, type Outcome, UnknownSkuError } from "../inventory.ts";
import type { Batch, Operation } from "../operation.ts";
import { type Noted, type Plan, planOf, type Step } from "../plan.ts";
import { expireReservations } from "./expiry.ts";
import { recordAll } from "./statements.ts";

/** All of the batch in one transaction of two round trips. */
export function applyMany(
  database: Database,
  batch: Batch,
  signal: AbortSignal | undefined,
): Promise<readonly OrderAnswer[]> {
  const what = `a batch of ${batch.operations.length} for ${quote(batch.sku)} was done`;
  return insist(database.address, what, signal, (limit) => attempt(database, batch, limit));
}

async function attempt(
  database: Database,
  batch: Batch,
  limit: AbortSignal,
): Promise<readonly OrderAnswer[] | undefined> {
  try {
    const answers = await database.transaction(async (tx) => {
      const { writes, answers } = await plan(database.dialect, tx, batch);
      if (answers) await tx.commit(writes);
      return answers;
    }, limit);
    if (answers === undefined) await expireReservations(database, batch.sku, limit);
    return answers;
  } catch (error) {
    // An operation id was used for another sku in the meantime: the next look finds it.
    if (error instanceof DuplicateKeyError) return undefined;
    throw error;
  }
}

/** What is still to be written, and the answers then; none where expired reservations are to be put back before. */
export async function plan(
  dialect: Dialect,
  tx: Pick<Transaction, "packet">,
  batch: Batch,
): Promise<{ readonly writes: readonly Sql[]; readonly answers?: readonly OrderAnswer[] }> {
  const state = toState(batch, await tx.packet(readState(dialect, batch)));
  const { isShort, done, answers, ...rest } = planOf(batch.operations, state, sell);
  if (isShort && state.hasExpired) return { writes: [] };
  return { writes: done.length > 0 ? write(batch, state, { done, ...rest }) : [], answers };
}

interface State {
  /** Microseconds since 1970 by the database's clock. */
  readonly at: bigint;

  /** The number of the last entry in the ledger. */
  readonly seq: bigint;
  readonly stock: OnHand;
  readonly hasExpired: boolean;
  readonly noted: ReadonlyMap<string, Noted>;
}

interface OnHand {
  readonly onHand: number;
}

function readState(dialect: Dialect, { sku, fence, operations }: Batch): readonly Sql[] {
  const ids = list(operations.map(({ operationId }) => operationId));
  return [
    ...(fence ? [claim(dialect, fence), readClaim(fence)] : []),
    sql`
      SELECT on_hand, seq, ${dialect.now} AS at FROM lockstep_stock
      WHERE sku = ${sku} ${dialect.exclusive}`,
    sql`
      SELECT COUNT(*) AS expired FROM lockstep_reservation
      WHERE sku = ${sku} AND expires_at <= ${dialect.now}`,
    sql`
      SELECT operation_id, payload_hash, outcome, on_hand FROM lockstep_ledger
      WHERE operation_id IN (${ids})`,
  ];
}

function toState({ sku, fence }: Batch, results: readonly { rows: readonly Row[] }[]): State {
  const rows = results.map((result) => result.rows);
  if (fence) checkClaim(fence, rows[1] ?? []);
  const [stock, expired, ledger] = rows.slice(fence ? 2 : 0);
  const [row] = stock ?? [];
  if (row === undefined) throw new UnknownSkuError(sku);
  return {
    at: asBigInt(row.at),
    seq: asBigInt(row.seq),
    stock: { onHand: asNumber(row.on_hand) },
    hasExpired: asNumber(expired?.[0]?.expired) > 0,
    noted: new Map(ledger?.map((entry) => [asText(entry.operation_id), toNoted(entry)])),
  };
}

function toNoted({ payload_hash, outcome, on_hand }: Row): Noted {
  return {
    hash: payload_hash as Uint8Array,
    outcome: asText(outcome) as Outcome,
    remaining: asNumber(on_hand),
  };
}

function sell({ onHand }: OnHand, { quantity }: Operation): Step<OnHand> {
  return quantity <= onHand
    ? { outcome: "applied", quantity, stock: { onHand: onHand - quantity } }
    : { outcome: "sold-out", quantity, stock: { onHand } };
}

/** The stock's row is locked since it was read, and yet the condition stays: no sale without it. */
function write(
  { sku }: Batch,
  state: State,
  { done, stock }: Pick<Plan<OnHand>, "done" | "stock">,
): readonly Sql[] {
  const total = state.stock.onHand - stock.onHand;
  return [
    sql`
      UPDATE lockstep_stock
      SET on_hand = on_hand - ${total}, sold = sold + ${total}, seq = seq + ${done.length}
      WHERE sku = ${sku} AND on_hand >= ${total}`,
    recordAll(done, state.seq, state.at),
  ];
}
