import { checkClaim, claim, claimAndRead } from "../../../database/claim.ts";
import { isRepeated } from "../../../database/serial-calls.ts";
import {
  asBigInt,
  asNumber,
  asText,
  type Database,
  type Dialect,
  DuplicateKeyError,
  exact,
  type Row,
  type Sql,
  sql,
  type Transaction,
} from "../../../database/sql.ts";
import {
  createInventory,
  createOperations,
  type HistoryPage,
  type InventoryBackend,
  type StockPage,
} from "../../../inventory/backend.ts";
import type { InventoryOptions } from "../../../inventory/events.ts";
import {
  type DecrementResult,
  InventoryError,
  type LedgerEntry,
  type LedgerEntryKind,
  type Reservation,
  type StockLevel,
  type StockOperations,
  type StockOutcome,
  type StockResult,
} from "../../../inventory/inventory.ts";
import {
  describeBatch,
  type Operation,
  type OperationBatch,
} from "../../../inventory/operation.ts";
import { checkFence, type Fence, formatFence } from "../../../lock/fence.ts";
import type { TransactionalInventory } from "../../transactional-inventory.ts";
import { toMillis } from "../micros.ts";
import { apply, attempt } from "./apply.ts";
import { applyMany, plan } from "./batch.ts";
import { applyInOneBatch } from "./one-batch.ts";
import { readStock, releaseExpired } from "./statements.ts";

/** Creates an inventory in the tables of a SQL database. The caller closes the database. */
export function sqlInventory(
  database: Database,
  options: InventoryOptions = {},
): TransactionalInventory {
  const claimed = new WeakSet<Fence>();
  const backend: InventoryBackend = {
    address: database.address,
    get: (sku) => get(database, sku),
    apply: (operation, signal) => apply(database, claimed, operation, signal),
    list: (page) => list(database, page),
    applyMany: (batch, signal) =>
      database.dialect.isOptimistic
        ? applyInOneBatch(database, batch, signal)
        : applyMany(database, batch, signal),
    expire: async (sku) => void (await database.batch(releaseExpired(database.dialect, sku))),
    history: (sku, page) => readHistory(database, sku, page),
    reservations: (sku, limit) => readReservations(database, sku, limit),
    claim: (fence) => claimResource(database, fence),
  };
  return {
    ...createInventory(backend, options),
    within: (tx) => within(tx, asDatabase(database.dialect, tx), options),
  };
}

function within(given: object, tx: OpenTransaction, options: InventoryOptions): StockOperations {
  const change = <T>(batch: OperationBatch, apply: () => Promise<T>) =>
    orConflict(inTurn(given, apply), batch);
  return createOperations(
    {
      get: (sku) => get(tx, sku),
      apply: (operation) =>
        change({ ...operation, operations: [operation] }, () => applyWithin(tx, operation)),
      applyMany: (batch) => change(batch, () => applyManyWithin(tx, batch)),
    },
    options,
  );
}

/** The last change in each transaction, settled. */
const lastIn = new WeakMap<object, Promise<unknown>>();

/** Makes the changes of a transaction one after the other: two at a time would read one state, and number their entries alike. */
function inTurn<T>(tx: object, change: () => Promise<T>): Promise<T> {
  const turn = lastIn.get(tx)?.then(change) ?? change();
  lastIn.set(
    tx,
    turn.then(undefined, () => {}),
  );
  return turn;
}

async function get(database: Pick<Database, "read">, sku: string): Promise<StockLevel | undefined> {
  const [row] = await database.read(readStock(sku));
  return row && toLevel(sku, row);
}

async function list(
  database: Database,
  { prefix, after, limit }: StockPage,
): Promise<readonly StockLevel[]> {
  const rows = await database.read(sql`
    SELECT sku, on_hand, reserved, sold, supplied FROM lockstep_stock
    WHERE sku > ${after} AND sku >= ${prefix} AND SUBSTR(sku, 1, LENGTH(${prefix})) = ${prefix}
    ORDER BY sku LIMIT ${limit}`);
  return rows.map((row) => toLevel(asText(row.sku), row));
}

function toLevel(sku: string, row: Row): StockLevel {
  return {
    sku,
    onHand: asNumber(row.on_hand),
    reserved: asNumber(row.reserved),
    sold: asNumber(row.sold),
    supplied: asNumber(row.supplied),
  };
}

async function claimResource(database: Database, fence: Fence): Promise<void> {
  checkFence(fence, fence?.resource);
  const results = await database.batch(claimAndRead(database.dialect, fence));
  checkClaim(fence, results.at(-1)?.rows ?? []);
}

async function readHistory(
  database: Database,
  sku: string,
  { limit, before }: HistoryPage,
): Promise<readonly LedgerEntry[]> {
  const rows = await database.read(sql`
    SELECT seq, kind, quantity, outcome, on_hand, operation_id, reservation, generation,
      ${exact(sql`token`)} AS token, at
    FROM lockstep_ledger
    WHERE sku = ${sku} AND seq < ${before}
    ORDER BY seq DESC
    LIMIT ${limit}`);
  return rows.map(toEntry);
}

function toEntry(row: Row): LedgerEntry {
  const optional = (value: unknown) => (value == null ? undefined : asText(value));
  return {
    seq: asNumber(row.seq),
    kind: asText(row.kind) as LedgerEntryKind,
    quantity: asNumber(row.quantity),
    outcome: asText(row.outcome) as StockOutcome,
    remaining: asNumber(row.on_hand),
    operationId: optional(row.operation_id),
    reservation: optional(row.reservation),
    fence:
      row.token == null ? undefined : formatFence(asNumber(row.generation), asBigInt(row.token)),
    at: new Date(asNumber(row.at) / 1_000),
  };
}

async function readReservations(
  database: Database,
  sku: string,
  limit: number,
): Promise<readonly Reservation[]> {
  const rows = await database.read(sql`
    SELECT id, quantity, expires_at - ${database.dialect.now} AS expires_in
    FROM lockstep_reservation
    WHERE sku = ${sku}
    ORDER BY expires_at, id
    LIMIT ${limit}`);
  return rows.map((row) => ({
    id: asText(row.id),
    quantity: asNumber(row.quantity),
    expiresIn: Math.max(0, toMillis(row.expires_in)),
  }));
}

/** An open transaction with the interface of its database. */
type OpenTransaction = Pick<Database, "dialect" | "batch" | "read">;

function asDatabase(dialect: Dialect, tx: Pick<Transaction, "batch">): OpenTransaction {
  return {
    dialect,
    batch: (statements) => tx.batch(statements),
    read: async (statement) => (await tx.batch([statement]))[0]?.rows ?? [],
  };
}

/**
 * Applies the operation in the caller's transaction. The stock's row is locked first: an earlier transaction with
 * the same operation has then committed, and its result is visible.
 */
async function applyWithin(tx: OpenTransaction, operation: Operation): Promise<StockResult> {
  const { sku, fence } = operation;
  const lock = sql`SELECT sku FROM lockstep_stock WHERE sku = ${sku} ${tx.dialect.forUpdate}`;
  const database = prepend(tx, [...(fence ? [claim(tx.dialect, fence)] : []), lock]);
  const claimed = new WeakSet(fence ? [fence] : []);
  for (;;) {
    const result = await attempt({ database, claimed }, operation);
    if (result) return result;
  }
}

async function applyManyWithin(
  tx: OpenTransaction,
  batch: OperationBatch,
): Promise<readonly DecrementResult[]> {
  for (;;) {
    const { writes, results } = await plan(tx.dialect, tx, batch);
    if (writes.length > 0) await tx.batch(writes);
    if (results) return results;
    await tx.batch(releaseExpired(tx.dialect, batch.sku));
  }
}

/**
 * Converts the refusal of an operation id by its unique key. Another transaction has used the id for another sku meanwhile: the
 * stock's row is locked.
 */
async function orConflict<T>(changing: Promise<T>, batch: OperationBatch): Promise<T> {
  try {
    return await changing;
  } catch (error) {
    if (!(error instanceof DuplicateKeyError) || isRepeated(error)) throw error;
    throw new InventoryError(
      "OPERATION_CONFLICT",
      `${describeBatch(batch)}: an operation id was already used for another change; choose a new id`,
    );
  }
}

/** Prepends the statements to the first batch, without their results. */
function prepend(tx: OpenTransaction, statements: readonly Sql[]): OpenTransaction {
  let first = statements;
  return {
    ...tx,
    async batch(rest) {
      const before = first;
      first = [];
      return (await tx.batch([...before, ...rest])).slice(before.length);
    },
  };
}
