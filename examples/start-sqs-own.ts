import mysql, { type RowDataPacket } from "mysql2/promise";

const pool = mysql.createPool({ host: "127.0.0.1", port: 3306, user: "root", database: "shop" });

interface Batch {
  readonly Records: readonly { readonly messageId: string; readonly body: string }[];
}

/** Takes messages such as {"orderId":"order-7","seat":4}. */
export async function handler({ Records }: Batch) {
  const batchItemFailures: { itemIdentifier: string }[] = [];
  for (const { messageId, body } of Records) {
    try {
      const { orderId, seat } = JSON.parse(body);
      const isTaken = await take(seat, orderId);
      // Tell the customer.
      console.log(orderId, isTaken ? "has the seat" : "is too late");
    } catch (error) {
      console.error(error);
      batchItemFailures.push({ itemIdentifier: messageId }); // SQS delivers this one again
    }
  }
  return { batchItemFailures };
}

/** Whether the order has the seat. A message that comes twice is answered as the first time. */
async function take(seat: number, order: string): Promise<boolean> {
  const update = "UPDATE seat SET taken_by = ? WHERE id = ? AND taken_by IS NULL";
  await pool.execute(update, [order, seat]);
  const select = "SELECT taken_by FROM seat WHERE id = ?";
  const [[found]] = await pool.execute<RowDataPacket[]>(select, [seat]);
  if (!found) throw new Error(`there is no seat ${seat}`);
  return found.taken_by === order;
}
