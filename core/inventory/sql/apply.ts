import { checkClaim, claim, readClaim } from "../../database/claim.ts";
import {
  asNumber,
  asText,
  type Database,
  DuplicateKeyError,
  type Result,
  type Row,
  type Sql,
  sql,
} from "../../database/sql.ts";
import { quote } from "../../lock/errors.ts";
import type { Fence } from "../../lock/fence.ts";
import { insist } from "../../lock/insist.ts";
import {
  type Answer,
  OperationConflictError,
  type Outcome,
  UnknownReservationError,
  UnknownSkuError,
} from "../inventory.ts";
import { hashOf, type Operation, sameBytes } from "../operation.ts";
import { expireReservations } from "./expiry.ts";
import { toDo, toRefuse } from "./statements.ts";

/** Where operations are done, and which fences are known to have been claimed there. */
export interface Place {
  readonly database: Pick<Database, "dialect" | "packet" | "read">;
  readonly claimed: WeakSet<Fence>;
}

/**
 * Does the operation once, however often this is called.
 *
 * When an answer is lost, the operation is asked for again: its id makes that harmless. Only when time runs
 * out over it is the outcome unknown.
 */
export async function apply(
  database: Database,
  claimed: WeakSet<Fence>,
  operation: Operation,
  signal: AbortSignal | undefined,
): Promise<Answer> {
  const what = `${operation.kind} ${quote(operation.operationId)} was done`;
  return insist(database.address, what, signal, async (limit) => {
    try {
      return await attempt({ database, claimed }, operation, limit);
    } catch (error) {
      // The same operation committed in another transaction while this one waited for the stock's row.
      if (error instanceof DuplicateKeyError) return undefined;
      throw error;
    }
  });
}

/** Resolves to undefined when it is worth trying again. */
export async function attempt(
  place: Place,
  operation: Operation,
  limit?: AbortSignal,
): Promise<Answer | undefined> {
  return (await toDoIt(place, operation, limit)) ?? (await toRefuseIt(place, operation, limit));
}

/** The one packet that is all in the ordinary case. */
async function toDoIt(
  place: Place,
  operation: Operation,
  limit: AbortSignal | undefined,
): Promise<Answer | undefined> {
  const { database, claimed } = place;
  const { before, change, record, after } = toDo(database.dialect, operation);
  const first = [...claimOf(place, operation), ...before];
  const results = await database.packet([...first, change, record, ...after], limit);
  const { affected, reply } = results[first.length] as Result;
  if (affected !== 1) return undefined;
  if (operation.fence) claimed.add(operation.fence);
  if (reply !== undefined)
    return { outcome: "applied", remaining: asNumber(reply), replayed: false };
  const [row] = await database.read(readLedger(operation), limit);
  return row && toAnswer(row, operation, false);
}

/**
 * Nothing was done: finds out why, and takes note of it where that is to be the answer for good.
 *
 * Resolves to undefined when it is worth trying again.
 */
async function toRefuseIt(
  place: Place,
  operation: Operation,
  limit: AbortSignal | undefined,
): Promise<Answer | undefined> {
  const { database, claimed } = place;
  const { kind, sku, fence, reservation = "" } = operation;
  const { change, record } = toRefuse(database.dialect, operation) ?? {};
  const writes = change && record ? [...claimOf(place, operation), change, record] : [];
  const reads = [readLedger(operation), readStock(sku), ...(fence ? [readClaim(fence)] : [])];
  const results = await database.packet([...writes, ...reads], limit);
  const [ledger, stock, claim] = results.slice(writes.length).map(({ rows }) => rows);
  if (ledger?.[0])
    return toAnswer(ledger[0], operation, results[writes.length - 2]?.affected !== 1);
  if (fence && !claim?.[0]) claimed.delete(fence);
  else if (fence) checkClaim(fence, claim ?? []);
  if (!stock?.[0]) throw new UnknownSkuError(sku);
  if (kind === "confirm" || kind === "cancel") throw new UnknownReservationError(sku, reservation);
  await expireReservations(database, sku, limit);
  return undefined;
}

/** A claim is raised once; later statements only look whether it still stands. */
function claimOf({ database, claimed }: Place, { fence }: Operation): readonly Sql[] {
  return fence && !claimed.has(fence) ? [claim(database.dialect, fence)] : [];
}

function readLedger({ operationId }: Operation): Sql {
  return sql`
    SELECT payload_hash, outcome, on_hand FROM lockstep_ledger WHERE operation_id = ${operationId}`;
}

function toAnswer(row: Row, operation: Operation, replayed: boolean): Answer {
  if (!sameBytes(row.payload_hash as Uint8Array, hashOf(operation))) {
    throw new OperationConflictError(operation.operationId);
  }
  return { outcome: asText(row.outcome) as Outcome, remaining: asNumber(row.on_hand), replayed };
}

export function readStock(sku: string): Sql {
  return sql`
    SELECT on_hand, reserved, sold, supplied, seq FROM lockstep_stock WHERE sku = ${sku}`;
}
