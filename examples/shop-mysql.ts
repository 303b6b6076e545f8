import mysql, { type Connection, type ResultSetHeader } from "mysql2/promise";

const pool = mysql.createPool({ host: "127.0.0.1", port: 3306, user: "root", database: "shop" });

interface Line {
  readonly sku: string;
  readonly quantity: number;
}

/** Sells all lines of an order or none. A repeated order is sold once. */
async function sell(order: string, lines: readonly Line[]): Promise<"sold" | "sold-out"> {
  const connection = await pool.getConnection(); // one connection from BEGIN to COMMIT
  let isOver = false;
  try {
    await connection.beginTransaction();
    const answer = await sellWithin(connection, order, lines);
    await (answer === "sold" ? connection.commit() : connection.rollback());
    isOver = true;
    return answer;
  } finally {
    if (isOver) connection.release();
    else connection.destroy(); // after an error: the server rolls back
  }
}

async function sellWithin(connection: Connection, order: string, lines: readonly Line[]) {
  const insert = "INSERT IGNORE INTO sale (order_id, `lines`) VALUES (?, ?)";
  const [added] = await connection.execute<ResultSetHeader>(insert, [order, JSON.stringify(lines)]);
  if (added.affectedRows === 0) return "sold";
  // Always in this order: sales of the same articles cannot deadlock.
  for (const { sku, quantity } of lines.toSorted((a, b) => (a.sku < b.sku ? -1 : 1))) {
    const take = "UPDATE stock SET on_hand = on_hand - ? WHERE sku = ? AND on_hand >= ?";
    const [taken] = await connection.execute<ResultSetHeader>(take, [quantity, sku, quantity]);
    if (taken.affectedRows === 0) return "sold-out";
  }
  return "sold";
}

console.log(await sell("order-7", [{ sku: "cup", quantity: 2 }])); // sold
console.log(await sell("order-7", [{ sku: "cup", quantity: 2 }])); // sold
console.log(await sell("order-8", [{ sku: "cup", quantity: 9 }])); // sold-out
await pool.end();
