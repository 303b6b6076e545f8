import pg from "pg";

// CREATE TABLE sale (order_id TEXT PRIMARY KEY, lines JSONB NOT NULL)
const pool = new pg.Pool({ host: "127.0.0.1", port: 5432, user: "shop", database: "shop" });
pool.on("error", console.error); // without it, an idle connection that breaks ends the process

interface Line {
  readonly sku: string;
  readonly quantity: number;
}

/** Sells all lines of an order or none. A repeated order is sold once; one that was sold out is tried anew. */
async function sell(order: string, lines: readonly Line[]): Promise<"sold" | "sold-out"> {
  const client = await pool.connect(); // one connection from BEGIN to COMMIT
  let isOver = false;
  try {
    await client.query("BEGIN");
    const answer = await sellWithin(client, order, lines);
    await client.query(answer === "sold" ? "COMMIT" : "ROLLBACK");
    isOver = true;
    return answer;
  } finally {
    client.release(!isOver); // after an error the connection is closed, and the server rolls back
  }
}

async function sellWithin(client: pg.PoolClient, order: string, lines: readonly Line[]) {
  const { rowCount: isNew } = await client.query(
    "INSERT INTO sale (order_id, lines) VALUES ($1, $2) ON CONFLICT DO NOTHING",
    [order, JSON.stringify(lines)],
  );
  if (!isNew) return "sold";
  // Always in this order: sales of the same articles cannot deadlock.
  for (const { sku, quantity } of lines.toSorted((a, b) => (a.sku < b.sku ? -1 : 1))) {
    const { rowCount } = await client.query(
      "UPDATE stock SET on_hand = on_hand - $2 WHERE sku = $1 AND on_hand >= $2",
      [sku, quantity],
    );
    if (rowCount === 0) return "sold-out";
  }
  return "sold";
}

console.log(await sell("order-7", [{ sku: "cup", quantity: 2 }])); // sold
console.log(await sell("order-7", [{ sku: "cup", quantity: 2 }])); // sold
console.log(await sell("order-8", [{ sku: "cup", quantity: 9 }])); // sold-out
await pool.end();
