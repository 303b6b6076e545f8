import {
  asNumber,
  asText,
  type Database,
  list,
  type Row,
  type Sql,
  sql,
  type Transaction,
} from "../../core/database/sql.ts";
import { MAX_QUANTITY, operationConflict } from "../../core/inventory/inventory.ts";
import { checkSku } from "../../core/inventory/operation.ts";
import { checkText, checkWhole, wrongType } from "../../core/lock/checks.ts";

/** An order for units of one sku. */
export interface StockOrder {
  /** 1 to 255 bytes. Also the operation id of the sale, so each order is sold once. */
  readonly orderId: string;
  readonly sku: string;

  /** A whole number from 1 to 1,000,000. */
  readonly quantity: number;
}

/** - `unknown-sku`: the sku does not exist. - `refused`: the order id was used for another operation. */
export type OrderStatus = "fulfilled" | "sold-out" | "unknown-sku" | "refused";

export type OrderCounts = Readonly<Record<OrderStatus | "open", number>>;

/** The orders per INSERT statement. */
const INSERT_SIZE = 500;

/** Throws a TypeError or RangeError that names the invalid field. */
export function checkOrder(order: StockOrder): void {
  const { orderId, sku, quantity } = Object(order) as StockOrder;
  checkText("orderId", orderId, 255);
  checkSku(sku);
  checkWhole("quantity", quantity, 1, MAX_QUANTITY);
}

/**
 * Adds orders to the table, and resolves to the number of new ones, as far as no other process adds them at once. An order
 * that is already there is left as it is, so that a repetition is harmless. Rejects with OPERATION_CONFLICT when an id is that of an order for another sku or
 * quantity; the other orders may have been added.
 */
export async function addOrders(
  database: Database,
  orders: readonly StockOrder[],
): Promise<number> {
  checkDatabase(database);
  if (!Array.isArray(orders)) throw wrongType("orders", "a list", orders);
  // Visits holes, too.
  for (const order of orders) checkOrder(order);
  // PostgreSQL refuses a statement with two rows of one id.
  const distinct = new Map<string, StockOrder>();
  for (const order of orders) {
    const first = distinct.get(order.orderId) ?? order;
    if (!isSame(first, order)) throw operationConflict(order.orderId);
    distinct.set(order.orderId, order);
  }
  let added = 0;
  for (const some of chunksOf([...distinct.values()], INSERT_SIZE)) {
    added += await addSome(database, some);
  }
  return added;
}

function checkDatabase(database: Database): void {
  if (!database?.read) throw wrongType("database", "the database of a store", database);
}

function* chunksOf<T>(all: readonly T[], size: number): Generator<readonly T[]> {
  for (let i = 0; i < all.length; i += size) yield all.slice(i, i + size);
}

async function addSome(database: Database, orders: readonly StockOrder[]): Promise<number> {
  const { now, onConflict } = database.dialect;
  const rows = orders.map(
    ({ orderId, sku, quantity }) => sql`(${orderId}, ${sku}, ${quantity}, ${now})`,
  );
  const ids = list(orders.map(({ orderId }) => orderId));
  const read = sql`SELECT order_id, sku, quantity FROM lockstep_order WHERE order_id IN (${ids})`;
  const known = await database.read(read);
  await database.batch([
    sql`
      INSERT INTO lockstep_order (order_id, sku, quantity, placed_at) VALUES ${list(rows)}
      ${onConflict("order_id")} order_id = lockstep_order.order_id`,
  ]);
  const wanted = new Map(orders.map((order) => [order.orderId, order]));
  // Read after the commit: another process may have added an order meanwhile.
  for (const { order_id, sku, quantity } of await database.read(read)) {
    const orderId = asText(order_id);
    const stored = { sku: asText(sku), quantity: asNumber(quantity) };
    if (!isSame(stored, wanted.get(orderId) ?? stored)) throw operationConflict(orderId);
  }
  return orders.length - known.length;
}

function isSame(a: Omit<StockOrder, "orderId">, b: Omit<StockOrder, "orderId">): boolean {
  return a.sku === b.sku && a.quantity === b.quantity;
}

export async function countOrders(database: Database): Promise<OrderCounts> {
  checkDatabase(database);
  const rows = await database.read(
    sql`SELECT answer, COUNT(*) AS orders FROM lockstep_order GROUP BY answer`,
  );
  const counts = { open: 0, fulfilled: 0, "sold-out": 0, "unknown-sku": 0, refused: 0 };
  for (const { answer, orders } of rows) {
    const which = answer === null ? "open" : (asText(answer) as OrderStatus);
    counts[which] = asNumber(orders);
  }
  return counts;
}

/** The number of open orders for one sku. */
export interface OpenSku {
  readonly sku: string;
  readonly orders: number;
}

export async function openSkus(
  database: Database,
  signal?: AbortSignal,
): Promise<readonly OpenSku[]> {
  const rows = await database.read(
    sql`SELECT sku, COUNT(*) AS orders FROM lockstep_order WHERE answer IS NULL GROUP BY sku`,
    signal,
  );
  return rows.map((row) => ({ sku: asText(row.sku), orders: asNumber(row.orders) }));
}

/** Returns the oldest open orders for a sku, in the order of their arrival. */
export async function openOrders(
  tx: Pick<Transaction, "batch">,
  sku: string,
  limit: number,
): Promise<readonly StockOrder[]> {
  const [result] = await tx.batch([
    sql`
      SELECT order_id, quantity FROM lockstep_order
      WHERE answer IS NULL AND sku = ${sku} ORDER BY seq LIMIT ${limit}`,
  ]);
  return (result?.rows ?? []).map((row: Row) => ({
    orderId: asText(row.order_id),
    sku,
    quantity: asNumber(row.quantity),
  }));
}

/** Returns the statements that write the status of orders. A status is never overwritten. */
export function answerOrders(
  database: Database,
  answers: ReadonlyMap<string, OrderStatus>,
): readonly Sql[] {
  const byAnswer = Map.groupBy(answers.keys(), (orderId) => answers.get(orderId));
  return [...byAnswer].map(
    ([answer, orderIds]) => sql`
      UPDATE lockstep_order SET answer = ${answer ?? null}, answered_at = ${database.dialect.now}
      WHERE order_id IN (${list(orderIds)}) AND answer IS NULL`,
  );
}
