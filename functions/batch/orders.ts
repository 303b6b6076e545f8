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
import { MOST_UNITS } from "../../core/inventory/inventory.ts";
import { checkText, checkWhole } from "../../core/lock/checks.ts";

/** An order for units of one sku. */
export interface PlacedOrder {
  /** 1 to 255 bytes. It is the operation id of the sale as well: what was sold under it is not sold again. */
  readonly orderId: string;
  readonly sku: string;
  readonly quantity: number;
}

/** `unknown-sku`, `refused`: there is no such article, or its id was used for something else. */
export type OrderAnswer = "fulfilled" | "sold-out" | "unknown-sku" | "refused";

export type OrderCounts = Readonly<Record<OrderAnswer | "open", number>>;

/** How many orders go into one statement. */
const ORDERS_AT_ONCE = 500;

/** Throws a TypeError or RangeError that names what is wrong. */
export function checkOrder({ orderId, sku, quantity }: PlacedOrder): void {
  checkText("orderId", orderId, 255);
  checkText("sku", sku, 255);
  checkWhole("quantity", quantity, 1, MOST_UNITS);
}

/** Puts orders into the queue. One whose id is there already changes nothing, so adding them again is harmless. */
export async function addOrders(database: Database, orders: readonly PlacedOrder[]): Promise<void> {
  orders.forEach(checkOrder);
  const { now, onConflict } = database.dialect;
  for (let i = 0; i < orders.length; i += ORDERS_AT_ONCE) {
    const rows = orders
      .slice(i, i + ORDERS_AT_ONCE)
      .map(({ orderId, sku, quantity }) => sql`(${orderId}, ${sku}, ${quantity}, ${now})`);
    await database.packet([
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
    const which = answer === null ? "open" : (asText(answer) as OrderAnswer);
    counts[which] = asNumber(orders);
  }
  return counts;
}

/** What waits for one sku. */
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

/** The oldest open orders for a sku, in the order of their arrival. */
export async function openOrders(
  tx: Pick<Transaction, "packet">,
  sku: string,
  limit: number,
): Promise<readonly PlacedOrder[]> {
  const [result] = await tx.packet([
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

/** Statements that write these answers down, once and for all. */
export function answerOrders(
  { dialect }: Database,
  answers: ReadonlyMap<string, OrderAnswer>,
): readonly Sql[] {
  const byAnswer = Map.groupBy(answers.keys(), (orderId) => answers.get(orderId));
  return [...byAnswer].map(
    ([answer, orderIds]) => sql`
      UPDATE lockstep_order SET answer = ${answer ?? null}, answered_at = ${dialect.now}
      WHERE order_id IN (${list(orderIds)}) AND answer IS NULL`,
  );
}
