import mysql, { type Connection, type ResultSetHeader, type RowDataPacket } from "mysql2/promise";

// CREATE TABLE seat (id INT PRIMARY KEY, taken_by VARCHAR(64))
// CREATE TABLE answer (order_id VARCHAR(64) COLLATE utf8mb4_bin PRIMARY KEY, seat INT NOT NULL, has_seat BOOLEAN)
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
      if (typeof orderId !== "string" || !Number.isInteger(seat)) throw new Error("no order");
      const hasSeat = await take(seat, orderId);
      // Tell the customer.
      console.log(orderId, hasSeat ? "has the seat" : "is too late");
    } catch (error) {
      console.error(error);
      batchItemFailures.push({ itemIdentifier: messageId }); // SQS delivers this one again
    }
  }
  return { batchItemFailures };
}

/** Whether the order gets the seat. A message that comes twice is answered as the first time, also if the seat is free by then. */
async function take(seat: number, order: string): Promise<boolean> {
  const connection = await pool.getConnection(); // one connection from BEGIN to COMMIT
  let isOver = false;
  try {
    await connection.beginTransaction();
    const hasSeat = await takeWithin(connection, seat, order);
    await connection.commit();
    isOver = true;
    return hasSeat;
  } finally {
    if (isOver) connection.release();
    else connection.destroy(); // after an error: the server rolls back
  }
}

async function takeWithin(connection: Connection, seat: number, order: string) {
  // A second delivery waits here until the first one has committed, and then finds its answer.
  const add =
    "INSERT INTO answer (order_id, seat) VALUES (?, ?) ON DUPLICATE KEY UPDATE order_id = order_id";
  await connection.execute(add, [order, seat]);
  const find = "SELECT seat, has_seat FROM answer WHERE order_id = ? FOR UPDATE";
  const [[answer]] = await connection.execute<RowDataPacket[]>(find, [order]);
  if (answer?.seat !== seat) throw new Error(`${order} has asked for seat ${answer?.seat}`);
  if (answer.has_seat !== null) return answer.has_seat === 1;
  const update = "UPDATE seat SET taken_by = ? WHERE id = ? AND taken_by IS NULL";
  const [{ affectedRows }] = await connection.execute<ResultSetHeader>(update, [order, seat]);
  const look = "SELECT id FROM seat WHERE id = ?";
  const [[known]] = await connection.execute<RowDataPacket[]>(look, [seat]);
  if (!known) throw new Error(`there is no seat ${seat}`);
  const set = "UPDATE answer SET has_seat = ? WHERE order_id = ?";
  await connection.execute(set, [affectedRows, order]);
  return affectedRows === 1;
}
