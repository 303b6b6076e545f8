import pg from "pg";

const pool = new pg.Pool({ host: "127.0.0.1", port: 5432, user: "shop", database: "shop" });
pool.on("error", console.error); // without it, an idle connection that breaks ends the process
const ADD = "INSERT INTO answer (order_id, outcome) VALUES ($1, 'sold') ON CONFLICT DO NOTHING";
const TAKE = "UPDATE stock SET on_hand = on_hand - $2 WHERE sku = $1 AND on_hand >= $2";
const KNOWN = "SELECT sku FROM stock WHERE sku = $1";
const REFUSE = "UPDATE answer SET outcome = 'sold-out' WHERE order_id = $1";
const FIND = "SELECT outcome FROM answer WHERE order_id = $1 AND mailed_at IS NULL";
const MAILED = "UPDATE answer SET mailed_at = now() WHERE order_id = $1";

interface Line {
  readonly sku: string;
  readonly quantity: number;
}

/** Call it for each delivery. Acknowledge the message when it resolves; let it come again when it rejects. */
async function onMessage(order: string, lines: readonly Line[]): Promise<void> {
  const client = await pool.connect();
  let isOver = false;
  try {
    await client.query("BEGIN");
    // A second delivery waits here until the first one has committed, and then adds no row.
    const { rowCount: isNew } = await client.query(ADD, [order]);
    if (isNew && !(await take(client, lines))) await client.query(REFUSE, [order]);
    await client.query("COMMIT");
    isOver = true;
  } finally {
    client.release(!isOver); // after an error the connection is closed, and the server rolls back
  }
  const { rows } = await pool.query<{ outcome: string }>(FIND, [order]);
  if (!rows[0]) return; // the mail is out
  await mail(order, rows[0].outcome);
  await pool.query(MAILED, [order]);
}

/** Takes the units of all lines, or of none. */
async function take(client: pg.PoolClient, lines: readonly Line[]): Promise<boolean> {
  await client.query("SAVEPOINT untouched");
  for (const { sku, quantity } of lines.toSorted((a, b) => (a.sku < b.sku ? -1 : 1))) {
    const { rowCount: isTaken } = await client.query(TAKE, [sku, quantity]);
    if (isTaken) continue;
    const { rowCount: isKnown } = await client.query(KNOWN, [sku]);
    if (!isKnown) throw new Error(`there is no ${sku}`);
    await client.query("ROLLBACK TO SAVEPOINT untouched");
    return false;
  }
  return true;
}

const mails: string[] = [];
/** Your mail service. Give it the order's id as the key of the mail, if it knows keys. */
async function mail(order: string, outcome: string): Promise<void> {
  mails.push(`${order} ${outcome}`);
}

const spoon = { sku: "spoon", quantity: 1 };
await onMessage("order-1", [spoon]);
await onMessage("order-1", [spoon]); // delivered again
await onMessage("order-2", [{ sku: "cup", quantity: 1 }, spoon]); // takes no cup either
console.log(mails.join(", ")); // order-1 sold, order-2 sold-out
await pool.end();
