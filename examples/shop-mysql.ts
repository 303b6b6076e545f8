import mysql, { type Connection, type ResultSetHeader, type RowDataPacket } from "mysql2/promise";

// CREATE TABLE stock (sku VARCHAR(64) PRIMARY KEY, on_hand INT NOT NULL CHECK (on_hand >= 0))
// CREATE TABLE sale (order_id VARCHAR(64) COLLATE utf8mb4_bin PRIMARY KEY, `lines` JSON NOT NULL, outcome VARCHAR(8))
// INSERT INTO stock VALUES ('cup', 5), ('seat-12A', 1)
const pool = mysql.createPool({ host: "127.0.0.1", port: 3306, user: "root", database: "shop" });

interface Line {
  readonly sku: string;
  readonly quantity: number;
}

type Outcome = "sold" | "sold-out";

/** Sells all lines of an order or none. A repeated order is answered as the first time, "sold-out" included. */
async function sell(order: string, lines: readonly Line[]): Promise<Outcome> {
  const connection = await pool.getConnection(); // one connection from BEGIN to COMMIT
  let isOver = false;
  try {
    await connection.beginTransaction();
    const outcome = await sellWithin(connection, order, lines);
    await connection.commit();
    isOver = true;
    return outcome;
  } finally {
    if (isOver) connection.release();
    else connection.destroy(); // after an error: the server rolls back
  }
}

async function sellWithin(connection: Connection, order: string, lines: readonly Line[]) {
  // A second delivery waits here until the first one has committed, and then finds its outcome.
  const add =
    "INSERT INTO sale (order_id, `lines`) VALUES (?, ?) ON DUPLICATE KEY UPDATE order_id = order_id";
  await connection.execute(add, [order, JSON.stringify(lines)]);
  const find = "SELECT outcome FROM sale WHERE order_id = ? FOR UPDATE";
  const [[found]] = await connection.execute<RowDataPacket[]>(find, [order]);
  if (found?.outcome) return found.outcome as Outcome;
  const outcome = (await take(connection, lines)) ? "sold" : "sold-out";
  await connection.execute("UPDATE sale SET outcome = ? WHERE order_id = ?", [outcome, order]);
  return outcome;
}

/** Takes the units of all lines, or of none. */
async function take(connection: Connection, lines: readonly Line[]): Promise<boolean> {
  await connection.query("SAVEPOINT untouched");
  // Always in this order: sales of the same articles cannot deadlock.
  for (const { sku, quantity } of lines.toSorted((a, b) => (a.sku < b.sku ? -1 : 1))) {
    const update = "UPDATE stock SET on_hand = on_hand - ? WHERE sku = ? AND on_hand >= ?";
    const [taken] = await connection.execute<ResultSetHeader>(update, [quantity, sku, quantity]);
    if (taken.affectedRows === 1) continue;
    const look = "SELECT sku FROM stock WHERE sku = ?";
    const [[known]] = await connection.execute<RowDataPacket[]>(look, [sku]);
    if (!known) throw new Error(`there is no ${sku}`);
    await connection.query("ROLLBACK TO SAVEPOINT untouched");
    return false;
  }
  return true;
}

console.log(await sell("order-7", [{ sku: "cup", quantity: 2 }])); // sold
console.log(await sell("order-7", [{ sku: "cup", quantity: 2 }])); // sold
const seats = [
  { sku: "cup", quantity: 1 },
  { sku: "seat-12A", quantity: 2 },
];
console.log(await sell("order-8", seats)); // sold-out
await pool.end();
