import pg from "pg";

const pool = new pg.Pool({ host: "127.0.0.1", port: 5432, user: "shop", database: "shop" });
pool.on("error", console.error); // without it, an idle connection that breaks ends the process

interface Line {
  readonly sku: string;
  readonly quantity: number;
}

/** Sets all lines aside for 15 minutes, or none. One id per attempt: the same one again only after a lost answer. */
function reserve(id: string, lines: readonly Line[]): Promise<boolean> {
  return transaction(async (client) => {
    const sorted = lines.toSorted((a, b) => (a.sku < b.sku ? -1 : 1));
    const insert = `INSERT INTO basket (id, lines, expires_at)
      VALUES ($1, $2, now() + interval '15 minutes') ON CONFLICT DO NOTHING`;
    const { rowCount: isNew } = await client.query(insert, [id, JSON.stringify(sorted)]);
    if (!isNew) return true; // a repetition
    for (const { sku, quantity } of sorted) {
      const take = "UPDATE stock SET on_hand = on_hand - $2 WHERE sku = $1 AND on_hand >= $2";
      if ((await client.query(take, [sku, quantity])).rowCount === 0) return false;
    }
    return true;
  });
}

/** The buyer has paid: whether the units are sold now. Not if the basket has expired. Repeatable. */
async function sell(id: string): Promise<boolean> {
  const mark = `UPDATE basket SET state = 'sold'
    WHERE id = $1 AND (state = 'sold' OR (state = 'open' AND expires_at > now()))`;
  return (await pool.query(mark, [id])).rowCount === 1;
}

/** The buyer has left, or comes again with another basket. */
const cancel = (id: string) => close("id = $1", [id]);

/** Each minute: puts the units of all expired baskets back. */
async function sweep() {
  while (await close("expires_at <= now()"));
}

function close(which: string, values: readonly string[] = []): Promise<boolean> {
  return transaction(async (client) => {
    const found = `SELECT id FROM basket WHERE state = 'open' AND ${which} LIMIT 1 FOR UPDATE SKIP LOCKED`;
    const mark = `UPDATE basket SET state = 'closed' WHERE id = (${found}) RETURNING lines`;
    const { rows } = await client.query<{ lines: readonly Line[] }>(mark, [...values]);
    for (const { sku, quantity } of rows[0]?.lines ?? []) {
      const add = "UPDATE stock SET on_hand = on_hand + $2 WHERE sku = $1";
      await client.query(add, [sku, quantity]);
    }
    return rows.length === 1;
  });
}

/** Commits if the body resolves to true. */
async function transaction(body: (client: pg.PoolClient) => Promise<boolean>): Promise<boolean> {
  const client = await pool.connect();
  let isOver = false;
  try {
    await client.query("BEGIN");
    const isDone = await body(client);
    await client.query(isDone ? "COMMIT" : "ROLLBACK");
    isOver = true;
    return isDone;
  } finally {
    client.release(!isOver); // after an error the connection is closed, and the server rolls back
  }
}

const lines = [
  { sku: "fork", quantity: 1 },
  { sku: "knife", quantity: 1 },
];
console.log(await reserve("attempt-1", lines)); // true
console.log(await reserve("attempt-1", lines)); // true
console.log(await reserve("attempt-2", lines)); // false
await cancel("attempt-1");
console.log(await reserve("attempt-3", lines)); // true
await sweep();
console.log(await sell("attempt-3")); // true
await pool.end();
