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
import { MAX_QUANTITY } from "../../core/inventory/inventory.ts";
import { checkText, checkWhole } from "../../core/lock/checks.ts";

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
export function checkOrder({ orderId, sku, quantity }: StockOrder): void {
  checkText("orderId", orderId, 255);
  checkText("sku", sku, 255);
  checkWhole("quantity", quantity, 1, MAX_QUANTITY);
}

/** Adds orders to the table. An order whose id is already in the table is ignored, so a repetition is harmless. */
export async function addOrders(database: Database, orders: readonly StockOrder[]): Promise<void> {
  orders.forEach(checkOrder);
  const { now, onConflict } = database.dialect;
  // PostgreSQL refuses a statement with two rows of one id.
  const known = new Set<string>();
  const distinct = orders.filter(({ orderId }) => known.size < known.add(orderId).size);
  for (let i = 0; i < distinct.length; i += INSERT_SIZE) {
    const rows = distinct
      .slice(i, i + INSERT_SIZE)
      .map(({ orderId, sku, quantity }) => sql`(${orderId}, ${sku}, ${quantity}, ${now})`);
    await database.batch([
      sql`
        INSERT INTO lockstep_order (order_id, sku, quantity, placed_at) VALUES ${list(rows)}
        ${onConflict("order_id")} order_id = lockstep_order.order_id`,
    ]);
  }
}

export async function countOrders(database: Database): Promise<OrderCounts> {
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
